// plimsoll-text-probe: what the library does with texts, for the tests that compare with other libraries. Texts on stdin, each
// a 32-bit length and its bytes.
//   normalize NFC|NFD|NFKC|NFKD   their normal forms in the same way
//   encode TOKENIZER POLICY       number of ids and ids (32 bits each), length and bytes of the decoded text
//   time TOKENIZER PASSES         a line for each pass over all texts: CPU seconds, number of ids, hits of the cache so far

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/tokenizer/tokenizer.hpp"
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

plimsoll::TokenizerOptions options_of(const std::string& policy)
{
    plimsoll::TokenizerOptions options;
    options.special_in_text = policy == "match"   ? plimsoll::SpecialInText::match
                              : policy == "error" ? plimsoll::SpecialInText::error
                                                  : plimsoll::SpecialInText::text;
    return options;
}

int encode(const std::string& file, const std::string& policy)
{
    const auto tokenizer = plimsoll::make_tokenizer(file, options_of(policy));
    const auto encoder = tokenizer->make_encoder();
    std::vector<std::uint32_t> ids;
    for (std::string text; read_text(text);)
    {
        ids.clear();
        encoder->encode(text, ids);
        write_bytes(ids.data(), ids.size() * 4, static_cast<std::uint32_t>(ids.size()));
        const std::string decoded = tokenizer->decode(ids.data(), static_cast<std::int64_t>(ids.size()));
        write_bytes(decoded.data(), decoded.size(), static_cast<std::uint32_t>(decoded.size()));
    }
    return 0;
}

/// CPU seconds of each pass over all texts, the first one with empty caches.
int time_encode(const std::string& file, int num_passes)
{
    std::vector<std::string> texts;
    for (std::string text; read_text(text);) { texts.push_back(text); }
    const auto tokenizer = plimsoll::make_tokenizer(file);
    const auto encoder = tokenizer->make_encoder();
    std::vector<std::uint32_t> ids;
    for (int pass = 0; pass < num_passes; ++pass)
    {
        const std::clock_t start = std::clock();
        std::size_t num = 0;
        for (const std::string& text : texts)
        {
            ids.clear();
            encoder->encode(text, ids);
            num += ids.size();
        }
        const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        std::printf("%.6f %zu %.4f\n", seconds, num,
                    static_cast<double>(encoder->counts().cache_hits) /
                        static_cast<double>(std::max<std::int64_t>(encoder->counts().cache_lookups, 1)));
    }
    return 0;
}

int run(const std::vector<std::string>& arguments)
{
    if (arguments.size() == 2 && arguments[0] == "normalize") { return normalize(arguments[1]); }
    if (arguments.size() == 3 && arguments[0] == "encode") { return encode(arguments[1], arguments[2]); }
    if (arguments.size() == 3 && arguments[0] == "time") { return time_encode(arguments[1], std::stoi(arguments[2])); }
    std::fputs(
        "usage: plimsoll-text-probe normalize FORM | encode TOKENIZER text|match|error | time TOKENIZER PASSES\n",
        stderr);
    return 2;
}

}  // namespace

int main(int argc, char** argv)
{
    try
    {
        return run(std::vector<std::string>(argv + 1, argv + argc));
    }
    catch (const plimsoll::Error& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
