#pragma once
/// Names and numbers of the token shard format, shared by its writer and its reader. The format: docs/token_shards.md.

#include <cstdint>
#include <string_view>

#include "base/dtype.hpp"

namespace plimsoll::shard_format
{

constexpr const char* format = "plimsoll-token-shard";
constexpr std::uint64_t version_major = 1;
constexpr std::uint64_t version_minor = 0;
constexpr std::int64_t block_bytes = 64 * 1024;

constexpr const char* tokens = "/tokens";
constexpr const char* loss_mask = "/loss_mask";
constexpr const char* document_ends = "/documents/ends";
constexpr const char* document_text_bytes = "/documents/text_bytes";
constexpr const char* document_group = "/documents";
constexpr const char* crc_group = "/crc";
constexpr const char* tokens_crc = "/crc/tokens";
constexpr const char* loss_mask_crc = "/crc/loss_mask";
constexpr const char* document_ends_crc = "/crc/document_ends";
constexpr const char* document_text_bytes_crc = "/crc/document_text_bytes";

constexpr std::string_view feature_loss_mask = "loss_mask";

/// The one threshold: an id fits u16 exactly when it is below 65,536.
constexpr Dtype token_dtype(std::int64_t vocab) { return vocab <= 65536 ? Dtype::u16 : Dtype::u32; }

}  // namespace plimsoll::shard_format
