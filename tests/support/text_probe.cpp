// plimsoll-text-probe normalize FORM: texts on stdin, each a 32-bit length and its bytes; their normal forms on
// stdout in the same way. For the tests that compare with other libraries.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "io/tokenizer/unicode_normalize.hpp"

namespace
{

bool read_text(std::string& text)
{
    std::uint32_t bytes = 0;
    if (std::fread(&bytes, 4, 1, stdin) != 1) { return false; }
    text.resize(bytes);
    return std::fread(text.data(), 1, bytes, stdin) == bytes;
}

void write_bytes(const void* data, std::size_t bytes, std::uint32_t count)
{
    std::fwrite(&count, 4, 1, stdout);
    std::fwrite(data, 1, bytes, stdout);
}

int normalize(const std::string& name)
{
    using plimsoll::NormalForm;
    const NormalForm form = name == "NFC"    ? NormalForm::nfc
                            : name == "NFD"  ? NormalForm::nfd
                            : name == "NFKC" ? NormalForm::nfkc
                                             : NormalForm::nfkd;
    for (std::string text, buffer; read_text(text);)
    {
        const std::string_view out = plimsoll::normalized(text, form, buffer);
        write_bytes(out.data(), out.size(), static_cast<std::uint32_t>(out.size()));
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv)
{
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 2 && arguments[0] == "normalize") { return normalize(arguments[1]); }
    std::fputs("usage: plimsoll-text-probe normalize NFC|NFD|NFKC|NFKD\n", stderr);
    return 2;
}
