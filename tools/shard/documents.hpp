#pragma once
/// plimsoll-shard dedup, split and decode: commands on the documents of token shards.

#include <memory>
#include <string>

#include "base/run_tool.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

Command dedup_command();
Command split_command();
Command decode_command();

/// The tokenizer of shards that say they are of `name`, or `kind` where the user named one.
/// @throws FormatError when it is not theirs, and what make_tokenizer() throws
std::unique_ptr<Tokenizer> tokenizer_of_shards(const std::string& kind, const std::string& name,
                                               const std::string& fingerprint, const std::string& path);

}  // namespace plimsoll
