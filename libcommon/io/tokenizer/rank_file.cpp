#include "io/tokenizer/rank_file.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/file.hpp"
#include "io/tokenizer/base64.hpp"

namespace plimsoll
{

namespace
{

// Ids share a 64-bit word with merges (bpe_tables.hpp).
constexpr std::uint64_t max_rank = (1U << 21) - 1;

struct RankLine
{
    std::string token;
    std::uint64_t rank = 0;
};

// Nothing where it is no such line.
std::optional<RankLine> parse_rank_line(std::string_view line)
{
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) { return std::nullopt; }
    std::optional<std::string> token = decode_base64(line.substr(0, space));
    const std::string_view number = line.substr(space + 1);
    RankLine result;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), result.rank);
    if (!token || token->empty() || error != std::errc() || stop != number.data() + number.size())
    {
        return std::nullopt;
    }
    result.token = std::move(*token);
    return result;
}

std::string_view next_rank_line(std::string_view& rest)
{
    const std::size_t stop = rest.find('\n');
    std::string_view line = rest.substr(0, stop);
    rest.remove_prefix(stop == std::string_view::npos ? rest.size() : stop + 1);
    if (!line.empty() && line.back() == '\r') { line.remove_suffix(1); }
    return line;
}

void check_rank_file(const std::vector<std::string>& tokens)
{
    std::array<bool, 256> bytes{};
    std::unordered_set<std::string_view> seen;
    seen.reserve(tokens.size());
    std::size_t gaps = 0;
    for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    {
        const std::string& token = tokens[rank];
        if (token.empty())
        {
            ++gaps;
            continue;
        }
        VALIDATE(seen.insert(token).second, FormatError, "the token of rank {} stands twice", rank);
        if (token.size() == 1) { bytes[static_cast<unsigned char>(token[0])] = true; }
    }
    // Ranks that specials took in their middle are real (p50k_base leaves out one); a file that lost lines is not.
    VALIDATE(gaps <= 16, FormatError, "{} of {} ranks are missing (at most 16 may be left to special tokens)", gaps,
             tokens.size());
    for (std::size_t byte = 0; byte < 256; ++byte)
    {
        VALIDATE(bytes[byte], FormatError,
                 "there is no token for byte 0x{:02x} alone (text with it could not be encoded)", byte);
    }
}

RankFile parse_ranks(std::string_view text)
{
    RankFile result;
    std::int64_t number = 0;
    for (std::string_view rest = text; !rest.empty();)
    {
        const std::string_view line = next_rank_line(rest);
        ++number;
        if (line.empty()) { continue; }
        std::optional<RankLine> parsed = parse_rank_line(line);
        VALIDATE(parsed, FormatError, "line {} is not 'base64 rank'", number);
        VALIDATE(parsed->rank <= max_rank, FormatError, "line {}: rank {} is too high (at most {})", number,
                 parsed->rank, max_rank);
        const auto rank = static_cast<std::size_t>(parsed->rank);
        if (rank >= result.tokens.size()) { result.tokens.resize(rank + 1); }
        VALIDATE(result.tokens[rank].empty(), FormatError, "line {}: rank {} stands twice", number, rank);
        result.tokens[rank] = std::move(parsed->token);
    }
    check_rank_file(result.tokens);
    result.sha256 = sha256_hex(text);
    return result;
}

}  // namespace

RankFile parse_rank_file(const std::string& path, std::string_view text)
{
    return with_context(path, [&] { return parse_ranks(text); });
}

RankFile read_rank_file(const std::string& path) { return parse_rank_file(path, read_text_file(path)); }

bool looks_like_rank_file(std::string_view first_bytes)
{
    std::string_view rest = first_bytes;
    return parse_rank_line(next_rank_line(rest)).has_value();
}

}  // namespace plimsoll
