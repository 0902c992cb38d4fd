/// Tokenizers against outside oracles: plimsoll-encode-probe KIND [--special text|match|error] [--eod TOKEN] [--decode] reads documents on
/// stdin, each a little-endian u32 of bytes and the bytes, and writes for each a u32 of ids and the ids (with --decode: ids in, bytes
/// out). --info prints what the definition says.

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace
{

bool read_all(void* data, std::size_t bytes) { return std::fread(data, 1, bytes, stdin) == bytes; }

void write_block(const void* data, std::size_t num, std::size_t size)
{
    const auto length = static_cast<std::uint32_t>(num);
    std::fwrite(&length, sizeof length, 1, stdout);
    std::fwrite(data, size, num, stdout);
}

struct ProbeOptions
{
    std::string kind;
    plimsoll::TokenizerOptions tokenizer;
    bool decode = false;
    bool info = false;
};

ProbeOptions parse(int argc, char** argv)
{
    ProbeOptions options;
    for (int i = 1; i < argc; ++i)
    {
        const std::string word = argv[i];
        const std::string value = i + 1 < argc ? argv[i + 1] : "";
        if (word == "--decode") { options.decode = true; }
        else if (word == "--info") { options.info = true; }
        else if (word == "--eod") { options.tokenizer.eod = value, ++i; }
        else if (word == "--special")
        {
            options.tokenizer.special_in_text = value == "match"   ? plimsoll::SpecialInText::match
                                                : value == "error" ? plimsoll::SpecialInText::error
                                                                   : plimsoll::SpecialInText::text;
            ++i;
        }
        else { options.kind = word; }
    }
    return options;
}

void encode_documents(const ProbeOptions& options)
{
    const auto tokenizer = plimsoll::make_tokenizer(options.kind, options.tokenizer);
    const auto encoder = tokenizer->make_encoder();
    std::vector<std::uint32_t> ids;
    std::string text;
    for (std::uint32_t length = 0; read_all(&length, sizeof length);)
    {
        if (options.decode)
        {
            ids.resize(length);
            if (!read_all(ids.data(), std::size_t{length} * sizeof(std::uint32_t))) { break; }
            text = tokenizer->decode(ids.data(), length);
            write_block(text.data(), text.size(), 1);
            continue;
        }
        text.resize(length);
        if (!read_all(text.data(), length)) { break; }
        ids.clear();
        encoder->encode(text, ids);
        write_block(ids.data(), ids.size(), sizeof(std::uint32_t));
    }
}

}  // namespace

int main(int argc, char** argv)
{
    try
    {
        const ProbeOptions options = parse(argc, argv);
        if (options.info)
        {
            const auto tokenizer = plimsoll::make_tokenizer(options.kind, options.tokenizer);
            std::printf("%s\n%s\n%lld\n%u\n%s\n", tokenizer->name().c_str(), tokenizer->description().c_str(),
                        static_cast<long long>(tokenizer->vocab()), tokenizer->eod(), tokenizer->fingerprint().c_str());
            return 0;
        }
        encode_documents(options);
        return 0;
    }
    catch (const plimsoll::Error& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
