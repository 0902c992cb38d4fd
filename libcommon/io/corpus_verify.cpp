#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "io/corpus.hpp"
#include "io/file.hpp"

namespace plimsoll
{

namespace
{

void check_row(const TokenShardInfo& row, const TokenShardInfo& found)
{
    const auto equal = [&](std::string_view what, std::int64_t in_file, std::int64_t in_manifest)
    {
        VALIDATE(in_file == in_manifest, FormatError, "{}: has {} {}, the manifest says {}", found.path, in_file, what,
                 in_manifest);
    };
    equal("bytes", found.file_bytes, row.file_bytes);
    equal("documents", found.num_documents, row.num_documents);
    equal("tokens", found.num_tokens, row.num_tokens);
    equal("text bytes", found.text_bytes, row.text_bytes);
    VALIDATE(found.fingerprint == row.fingerprint, FormatError, "{}: is of tokenizer sha256 {}, the manifest says {}",
             found.path, found.fingerprint.substr(0, 12), row.fingerprint.substr(0, 12));
    VALIDATE(found.tokens_crc == row.tokens_crc && found.loss_mask_crc == row.loss_mask_crc, FormatError,
             "{}: has tokens of crc32c {:08x}, the manifest says {:08x}", found.path, found.tokens_crc, row.tokens_crc);
}

void check_no_other_shard(const std::string& directory, const std::set<std::string>& known)
{
    for (const std::string& folder : {std::string(), std::string("validation/")})
    {
        if (!is_directory(directory + "/" + folder)) { continue; }
        for (const std::string& name : list_directory(directory + "/" + folder))
        {
            const bool shard = name.size() > 3 && name.compare(name.size() - 3, 3, ".h5") == 0;
            VALIDATE(!shard || known.count(folder + name) == 1, FormatError,
                     "{}/{}{}: is not in the manifest. remove it or make the shards again", directory, folder, name);
        }
    }
}

}  // namespace

CorpusManifest verify_corpus(const std::string& directory, const std::function<void(std::int64_t)>& on_bytes)
{
    CorpusManifest manifest = read_corpus_manifest(directory);
    std::set<std::string> known;
    for (const CorpusShard& shard : manifest.shards) { known.insert(shard.info.path); }
    check_no_other_shard(directory, known);
    for (const CorpusShard& shard : manifest.shards)
    {
        const std::string path = directory + "/" + shard.info.path;
        const std::int64_t bytes = file_size(path);
        VALIDATE(bytes >= 0, FormatError, "{}: is missing (the manifest lists it). make the shards again", path);
        VALIDATE(bytes >= shard.info.file_bytes, FormatError, "{}: truncated file ({} bytes, the manifest says {})",
                 path, bytes, shard.info.file_bytes);
        const TokenShardReader reader(path);
        check_row(shard.info, reader.info());
        reader.verify(on_bytes);
        VALIDATE(
            !shard.info.skeleton_crc || reader.skeleton_crc() == *shard.info.skeleton_crc, FormatError,
            "{}: metadata is damaged (bytes outside the datasets differ from the manifest). make the shard again or "
            "restore a copy",
            path);
    }
    return manifest;
}

}  // namespace plimsoll
