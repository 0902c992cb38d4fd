#pragma once
/// Writes the shard files of one step from many ranks and commits it: the one mechanism below CheckpointWriter and the
/// reshard tool. For io's own files.
///
/// Rank 0 alone touches the root. Each file has a creator, which makes and finishes it; any rank writes any block of any box.
/// Constructor, seal() and publish() are collective and succeed or throw on all ranks alike; whatever fails before
/// publish() has renamed the step leaves nothing of it behind.

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint_plan.hpp"
#include "io/checkpoint_shard.hpp"
#include "io/checkpoint_steps.hpp"
#include "io/direct_file.hpp"

namespace plimsoll::checkpoint
{

/// Bytes that the files of the plan need on the disk, a little too many.
std::int64_t planned_bytes(const StepPlan& plan);

/// One control thread of each rank.
class StepWriter
{
  public:
    struct Settings
    {
        std::string root;
        std::string uuid;    ///< of the step; rank 0's counts
        int num_buffers = 4; ///< blocks of 16 MiB under way: one is filled, two are written, one waits
    };

    /// `plan` is the same on all ranks; `world` outlives the writer.
    StepWriter(Settings settings, CheckpointMeta meta, StepPlan plan, Communicator& world);
    ~StepWriter();
    StepWriter(const StepWriter&) = delete;
    StepWriter& operator=(const StepWriter&) = delete;

    const StepPlan& plan() const { return plan_; }

    /// A failure to write is kept and comes out of seal() on all ranks; what follows it is not written.
    void write_box(std::size_t file, std::size_t row, const void* data);
    /// A buffer for one block; memory of one block at least, also after a failure.
    AlignedBuffer acquire();
    /// `buffer` holds block number `block` of the box.
    void write_block(std::size_t file, std::size_t row, std::int64_t block, AlignedBuffer buffer);
    /// This rank cannot deliver: seal() throws on all ranks.
    void fail(std::exception_ptr error);
    bool has_failed() const { return failure_ != nullptr; }

    /// All blocks are written: files are finished and synced. Returns the tensors with their digests.
    std::vector<TensorRecord> seal();
    /// Manifest, COMMIT, rename, latest. @pre seal()
    SavedStep publish();

  private:
    /// Of a block that this rank wrote; sent as it is.
    struct WrittenBlock
    {
        std::uint64_t digest = 0;
        std::uint32_t file = 0;
        std::uint32_t row = 0;
        std::uint32_t block = 0;
        std::uint32_t crc = 0;
    };
    struct FilePlaces
    {
        std::int64_t index_offset = 0;
        std::int64_t blocks_offset = 0;
        std::vector<std::uint64_t> boxes;
    };
    struct OpenFile
    {
        ShardLayout layout;
        std::unique_ptr<DirectFile> file;
    };

    ShardPlan shard_plan(std::size_t file) const;
    void prepare_root();
    void create_files();
    void share_places();
    ShardLayout layout_of(std::size_t file) const;
    OpenFile& open(std::size_t file);
    void close_files();
    void note(std::size_t file, std::size_t row, std::int64_t block, const BlockSum& sum);
    void share_sums(std::vector<std::vector<BoxSums>>& sums);
    void finish_files(const std::vector<std::vector<BoxSums>>& sums);
    SavedStep commit();
    template<class Body>
    void guarded(Body&& body);

    Settings settings_;
    StepPlan plan_;
    Manifest manifest_;
    Communicator& world_;
    std::unique_ptr<TemporaryStep> directory_; ///< on rank 0
    std::string path_;                         ///< of the temporary directory, on all ranks
    std::map<std::size_t, ShardLayout> created_;
    std::vector<FilePlaces> places_;
    std::map<std::size_t, OpenFile> open_;
    std::unique_ptr<WriteQueue> queue_; ///< goes before the files it writes to
    std::vector<WrittenBlock> written_;
    std::exception_ptr failure_;
};

}  // namespace plimsoll::checkpoint
