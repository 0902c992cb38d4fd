#pragma once
/// The checkpoint format in types (docs/checkpoint_format.md): names, index rows, manifest. For io's own files.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"

namespace plimsoll::checkpoint
{

constexpr const char* format_name = "plimsoll-checkpoint";
constexpr std::int64_t version_major = 1;
constexpr std::int64_t version_minor = 0;
constexpr std::int64_t block_bytes = std::int64_t{16} << 20; ///< a CRC for each block of a dataset
constexpr std::size_t max_dims = 4;
constexpr const char* manifest_file = "manifest.json";
constexpr const char* commit_file = "COMMIT";
constexpr const char* latest_file = "latest";

/// Row of /index: one box. Persistent: little-endian, 112 bytes, no holes.
struct IndexRow
{
    std::uint32_t name_id = 0;     ///< row of /names
    std::uint32_t box = 0;         ///< number in /<state>/<name>/<box>
    std::uint8_t state = 0;        ///< CheckpointState
    std::uint8_t dtype = 0;        ///< Dtype
    std::uint8_t num_dims = 0;     ///< of offset and shape; the rest is zero
    std::uint8_t reserved = 0;
    std::uint32_t crc = 0;         ///< CRC32C of the box's bytes
    std::array<std::uint64_t, max_dims> offset{};
    std::array<std::uint64_t, max_dims> shape{};
    std::uint64_t file_offset = 0; ///< of the first byte; 0 when there is none
    std::uint64_t num_bytes = 0;
    std::uint64_t digest = 0;      ///< this box's part of the tensor's element digest
    std::uint64_t first_block = 0; ///< row of /crc of the box's first block
};
static_assert(sizeof(IndexRow) == 112, "rows lie in files");

Box row_box(const IndexRow& row);
std::int64_t num_blocks(std::int64_t bytes);

/// What the manifest says of a shard file.
struct FileRecord
{
    std::string name;
    std::int64_t bytes = 0;      ///< of the file
    std::int64_t boxes = 0;      ///< rows of /index
    std::int64_t data_bytes = 0; ///< in boxes
    std::uint32_t index_crc = 0;    ///< CRC32C of the raw bytes of /index,
    std::uint32_t blocks_crc = 0;   ///< of /crc,
    std::uint32_t skeleton_crc = 0; ///< of all bytes of the file that lie in no box, in order
};

struct TensorRecord
{
    CheckpointTensor tensor;
    std::uint64_t digest = 0; ///< the same in every layout
};

struct Manifest
{
    std::array<std::int64_t, 2> version{version_major, version_minor};
    std::vector<std::string> required_features;
    std::vector<std::string> optional_features;
    std::string writer;
    std::string uuid;
    std::int64_t sequence = 0; ///< rises with every commit in one directory of checkpoints
    CheckpointMeta meta;       ///< of trainer only `step`: the rest lies in the first shard file
    std::vector<FileRecord> files;
    std::vector<TensorRecord> tensors;
};

std::string manifest_text(const Manifest& manifest);
/// Checks version and features too. @throws FormatError "path: ..."
Manifest parse_manifest(const std::string& text, const std::string& path);
/// Text of COMMIT for a manifest: what `sha256sum -c COMMIT` reads.
std::string commit_text(const std::string& manifest);
/// Checks COMMIT against manifest.json and reads it. @throws FormatError naming the file
Manifest read_manifest(const std::string& step_dir);

/// Empty when all files of the manifest are there with their sizes; else the first fault: "shard_...h5: missing".
std::vector<std::string> size_faults(const std::string& step_dir, const Manifest& manifest);

/// "model/layers.0.attn.q_proj.weight": names a tensor in messages and salts its digest.
std::string tensor_path(CheckpointState state, const std::string& name);
std::uint64_t digest_salt(CheckpointState state, const std::string& name);
/// @throws FormatError "origin: unknown state 9"
CheckpointState parse_state(const std::string& path, const std::string& origin);
Dtype parse_dtype(const std::string& name, const std::string& origin);
std::int64_t tensor_elements(const std::vector<std::int64_t>& shape);
/// 16 hex digits.
std::string hex64(std::uint64_t value);
/// "shard_00000_of_00001.h5"
std::string shard_file_name(std::int64_t shard, std::int64_t num_shards);
/// 32 random hex digits in UUID form.
std::string make_uuid();
/// Last component of a path.
std::string base_name(const std::string& path);

}  // namespace plimsoll::checkpoint
