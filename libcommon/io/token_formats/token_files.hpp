#pragma once
/// The formats of other tools behind one door: which one a path is, its documents, what it says of itself.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/token_formats/mds.hpp"
#include "io/token_formats/token_documents.hpp"

namespace plimsoll
{

enum class TokenFormat
{
    megatron,
    llmc,
    datatrove,
    mds
};

/// "megatron", "llmc", "ds", "mds".
const char* token_format_name(TokenFormat format);
/// @throws UsageError for another word
TokenFormat parse_token_format(const std::string& name);

/// The format of a path by its name and first bytes; nothing for a directory of token shards and anything unknown.
std::optional<TokenFormat> token_format_of(const std::string& path);

/// The files, prefixes or directories that a path names: a directory of files means those in it, sorted.
/// @throws UsageError when there is none
std::vector<std::string> token_paths(TokenFormat format, const std::string& path);

struct TokenReadOptions
{
    std::uint32_t eod = 0;  ///< of llm.c, whose files do not say where documents end
    MdsReadOptions mds;
};

/// The documents of several paths, one after the other.
std::unique_ptr<DocumentReader> open_token_files(TokenFormat format, const std::vector<std::string>& paths,
                                                 const TokenReadOptions& options = {});

/// What files say of themselves.
struct TokenFilesInfo
{
    TokenFormat format = TokenFormat::megatron;
    std::string dtype;           ///< "u16", or MDS's encoding
    std::int64_t num_files = 0;  ///< pairs, files or shards
    std::int64_t file_bytes = 0;
    std::int64_t num_tokens = -1;     ///< -1: only reading all of it tells
    std::int64_t num_documents = -1;  ///< -1: the format does not tell
    bool has_loss_mask = false;
    std::vector<std::pair<std::string, std::string>> notes;  ///< what else there is to say: name, text
};

/// From headers and sizes. @throws FormatError, IoError
TokenFilesInfo token_files_info(TokenFormat format, const std::string& path);

/// Reads and checks everything that the format lets one check. `on_bytes` is told how many bytes were checked since its
/// last call. @throws FormatError naming the first fault
TokenFilesInfo verify_token_files(TokenFormat format, const std::string& path,
                                  const std::function<void(std::int64_t)>& on_bytes = {});

}  // namespace plimsoll
