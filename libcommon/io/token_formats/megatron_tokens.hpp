#pragma once
/// Megatron's pair of files as a source of training tokens, read in place.

#include <memory>
#include <string>

#include "io/token_shard.hpp"

namespace plimsoll
{

/// "megatron:PREFIX"
bool is_megatron_path(const std::string& path);

/// The pair says neither vocabulary nor tokenizer: `vocab` is its vocabulary and every id that is read must be below it; the
/// fingerprint is empty. Its crc covers 16 stretches of 1,024 tokens, enough to tell one data set from another at a start.
/// @throws FormatError naming the file, ConfigError without a vocabulary
std::shared_ptr<const TokenFile> open_megatron(const std::string& path, std::int64_t vocab);

}  // namespace plimsoll
