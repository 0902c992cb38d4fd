#pragma once
/// `.tiktoken` rank files: a line is base64 of a token's bytes, a space, its rank, which is its id.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll
{

struct RankFile
{
    std::vector<std::string> tokens;  ///< bytes of each rank; empty where a rank is left out
    std::string sha256;               ///< of the file's bytes
};

/// @throws IoError, FormatError with path and line
RankFile read_rank_file(const std::string& path);

/// Same from the file's text.
RankFile parse_rank_file(const std::string& path, std::string_view text);

/// Whether a file's first bytes are a line of a rank file. A sentencepiece model, which shares the ending .model, is not.
bool looks_like_rank_file(std::string_view first_bytes);

}  // namespace plimsoll
