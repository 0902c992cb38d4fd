#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_blocks.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_shard.hpp"

namespace plimsoll
{

using namespace checkpoint;

namespace
{

using TensorKey = std::pair<CheckpointState, std::string>;

class Verifier
{
  public:
    Verifier(std::string step_dir, VerifyReport& report, const VerifyProgress& progress)
        : dir_(std::move(step_dir)), report_(report), progress_(progress)
    {
    }

    void run(VerifyLevel level)
    {
        if (!attempt([&] { manifest_ = read_manifest(dir_); })) { return; }
        count();
        const std::vector<std::string> faults = size_faults(dir_, manifest_);
        report_.faults.insert(report_.faults.end(), faults.begin(), faults.end());
        if (level == VerifyLevel::size) { return; }
        open_files();
        // What was named once is not named again: /trainer lies in the first file.
        if (first_is_sound_) { attempt([&] { check_trainer(); }); }
        // Coverage says nothing where a file is unreadable: its boxes are missing, and the file was named already.
        const bool all_open = shards_.size() == manifest_.files.size();
        if (all_open) { check_coverage(); }
        if (level == VerifyLevel::full) { check_data(all_open); }
    }

  private:
    // Runs `body`; an error becomes a fault. True when there was none.
    template<class Body>
    bool attempt(Body&& body)
    {
        try
        {
            body();
            return true;
        }
        catch (const Error& error)
        {
            report_.faults.emplace_back(error.what());
            return false;
        }
    }

    void count()
    {
        report_.files = static_cast<std::int64_t>(manifest_.files.size());
        report_.tensors = static_cast<std::int64_t>(manifest_.tensors.size());
        for (const FileRecord& file : manifest_.files)
        {
            report_.boxes += file.boxes;
            report_.bytes += file.bytes;
        }
    }

    void open_files()
    {
        for (std::size_t k = 0; k < manifest_.files.size(); ++k)
        {
            const std::string path = dir_ + "/" + manifest_.files[k].name;
            if (file_size(path) != manifest_.files[k].bytes) { continue; }  // named already
            const bool is_sound = attempt([&] {
                shards_.push_back(open_shard(dir_, manifest_, k));
                const std::string fault = dataset_fault(shards_.back());
                VALIDATE(fault.empty(), FormatError, "{}", fault);
                VALIDATE(skeleton_crc(path, shards_.back().rows) == manifest_.files[k].skeleton_crc, FormatError,
                         "{}: metadata is damaged (bytes outside the datasets differ from the manifest)", path);
            });
            first_is_sound_ = first_is_sound_ || (k == 0 && is_sound);
        }
    }

    void check_trainer()
    {
        const TrainerState trainer = read_trainer(dir_, manifest_);
        VALIDATE(trainer.step == manifest_.meta.trainer.step, FormatError, "{}/{}: /trainer is of step {}, manifest says {}",
                 dir_, manifest_.files[0].name, trainer.step, manifest_.meta.trainer.step);
    }

    void check_coverage()
    {
        std::map<TensorKey, std::vector<Box>> boxes;
        for (const ShardContent& shard : shards_)
        {
            for (const IndexRow& row : shard.rows)
            {
                boxes[{static_cast<CheckpointState>(row.state), shard.name(row)}].push_back(row_box(row));
            }
        }
        for (const TensorRecord& record : manifest_.tensors)
        {
            const TensorKey key{record.tensor.state, record.tensor.name};
            const std::string fault = coverage_fault(record.tensor.shape, boxes[key]);
            if (!fault.empty())
            {
                report_.faults.push_back(fmt::format("{}: {}: {}", dir_, tensor_path(key.first, key.second), fault));
            }
            boxes.erase(key);
        }
        for (const auto& stranger : boxes)
        {
            report_.faults.push_back(fmt::format("{}: {}: is not in the manifest", dir_,
                                                 tensor_path(stranger.first.first, stranger.first.second)));
        }
    }

    std::vector<BlockPlace> blocks_in_file_order(std::size_t shard) const
    {
        const std::vector<IndexRow>& rows = shards_[shard].rows;
        std::vector<std::size_t> order(rows.size());
        for (std::size_t k = 0; k < order.size(); ++k) { order[k] = k; }
        std::sort(order.begin(), order.end(),
                  [&](std::size_t a, std::size_t b) { return rows[a].file_offset < rows[b].file_offset; });
        std::vector<BlockPlace> places;
        for (const std::size_t row : order)
        {
            for (std::int64_t block = 0; block < num_blocks(static_cast<std::int64_t>(rows[row].num_bytes)); ++block)
            {
                BlockPlace place;
                place.shard = shard;
                place.row = row;
                place.block = block;
                places.push_back(place);
            }
        }
        return places;
    }

    // Sums the digests of all readable boxes and compares them with the manifest's.
    void check_data(bool complete)
    {
        std::map<TensorKey, std::uint64_t> digests;
        std::set<TensorKey> damaged;
        std::map<TensorKey, const TensorRecord*> records;
        for (const TensorRecord& record : manifest_.tensors) { records[{record.tensor.state, record.tensor.name}] = &record; }
        for (std::size_t shard = 0; shard < shards_.size(); ++shard) { check_shard(shard, records, digests, damaged); }
        if (!complete) { return; }
        for (const auto& entry : records)
        {
            if (damaged.count(entry.first) == 0 && digests[entry.first] != entry.second->digest)
            {
                report_.faults.push_back(fmt::format("{}: {}: digest is {}, manifest says {}", dir_,
                                                     tensor_path(entry.first.first, entry.first.second),
                                                     hex64(digests[entry.first]), hex64(entry.second->digest)));
            }
        }
    }

    void check_shard(std::size_t number, const std::map<TensorKey, const TensorRecord*>& records,
                     std::map<TensorKey, std::uint64_t>& digests, std::set<TensorKey>& damaged)
    {
        const ShardContent& shard = shards_[number];
        BlockSource source(shards_);
        const std::vector<BlockPlace> places = blocks_in_file_order(number);
        std::unique_ptr<BoxDigest> digest;
        std::uint32_t crc = 0;
        for (std::size_t k = 0; k < places.size(); ++k)
        {
            const BlockPlace& place = places[k];
            const IndexRow& row = shard.rows[place.row];
            const TensorKey key{static_cast<CheckpointState>(row.state), shard.name(row)};
            const auto record = records.find(key);
            if (record == records.end() || !box_inside(row_box(row), record->second->tensor.shape))
            {
                damaged.insert(key);  // named by the coverage check
                continue;
            }
            const std::int64_t element_bytes = dtype_bytes(static_cast<Dtype>(row.dtype));
            if (place.block == 0)
            {
                digest = std::make_unique<BoxDigest>(row_box(row), record->second->tensor.shape, element_bytes,
                                                     digest_salt(key.first, key.second));
                crc = 0;
            }
            const std::int64_t bytes = source.block_size(place);
            const bool readable = attempt([&] {
                const char* data = source.load(place, k + 1 < places.size() ? &places[k + 1] : nullptr);
                digest->add(data, bytes / element_bytes);
            });
            if (!readable)
            {
                damaged.insert(key);
                skip_box(places, k);
                continue;
            }
            crc = crc32c_combine(crc, shard.blocks[row.first_block + static_cast<std::size_t>(place.block)], bytes);
            finish_block(shard, row, place, key, *digest, crc, digests, damaged);
            bytes_done_ += bytes;
            if (progress_) { progress_(bytes_done_); }
        }
    }

    // After a bad block the rest of its box says nothing about the digest, but may hold more bad blocks: one line is enough.
    static void skip_box(const std::vector<BlockPlace>& places, std::size_t& k)
    {
        while (k + 1 < places.size() && places[k + 1].row == places[k].row) { ++k; }
    }

    void finish_block(const ShardContent& shard, const IndexRow& row, const BlockPlace& place, const TensorKey& key,
                      const BoxDigest& digest, std::uint32_t crc, std::map<TensorKey, std::uint64_t>& digests,
                      std::set<TensorKey>& damaged)
    {
        if (place.block + 1 < num_blocks(static_cast<std::int64_t>(row.num_bytes))) { return; }
        digests[key] += digest.value();
        if (crc != row.crc || digest.value() != row.digest)
        {
            damaged.insert(key);
            report_.faults.push_back(fmt::format("{}: {} of the box differs from /index", shard.dataset_text(row),
                                                 crc != row.crc ? "crc" : "digest"));
        }
    }

    std::string dir_;
    VerifyReport& report_;
    const VerifyProgress& progress_;
    Manifest manifest_;
    std::vector<ShardContent> shards_;
    std::int64_t bytes_done_ = 0;
    bool first_is_sound_ = false;
};

}  // namespace

VerifyReport verify_checkpoint(const std::string& step_dir, VerifyLevel level, const VerifyProgress& progress)
{
    VerifyReport report;
    Verifier(step_dir, report, progress).run(level);
    return report;
}

}  // namespace plimsoll
