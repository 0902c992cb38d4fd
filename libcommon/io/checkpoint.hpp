#pragma once
/// Checkpoints: one directory per committed step, layout-free canonical tensors in HDF5 shard files
/// (docs/checkpoint_format.md). What is visible is complete: a crash at any instant leaves the newest committed step loadable.
///
/// Writing, on one thread of each writing rank (all ranks make the writer and commit together):
///     CheckpointWriter writer(root, meta, held, world);     // who writes what; root/.tmp_step_N.<uuid>/ and its files
///     for (...)
///         if (writer.assigned(state, tensor, box))          // replicas are written once
///             writer.write(state, tensor, box, data);       // pwrite at the dataset's offset, CRC and digest as it passes
///     writer.commit();                                      // index, manifest, COMMIT, rename, latest; then retention
/// A writer that is destroyed without commit() removes its temporary directory.

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"
#include "layout/flat_layout.hpp"

namespace plimsoll
{

/// Names of states are paths in the file: model, optim/master, optim/exp_avg, optim/exp_avg_sq.
enum class CheckpointState : std::uint8_t
{
    model = 0,
    master = 1,
    exp_avg = 2,
    exp_avg_sq = 3,
};
const char* checkpoint_state_path(CheckpointState state);

/// A group of parameters with common optimizer settings. Keyed by name, never by position.
struct OptimizerGroup
{
    std::string name; ///< "decay", "no_decay"
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    std::int64_t step = 0; ///< Adam's t
    std::vector<std::string> tensors;
};

/// Part of a run with one plan of its data: from `base` consumed samples on.
struct DataStage
{
    std::int64_t base = 0;
    std::string plan_hash;
};

/// Layout-free scalars of a run, the same on all ranks.
struct TrainerState
{
    std::int64_t step = 0;
    std::int64_t consumed_samples = 0;
    std::int64_t consumed_tokens = 0;
    std::uint64_t seed = 0;
    std::string data_order;        ///< version of the order, e.g. "feistel8-v1"
    std::string plan_hash;         ///< TokenOrder's hash of shards, seq_len, ...
    std::string tokenizer;         ///< fingerprint
    std::vector<std::string> plan; ///< the lines under plan_hash; none in checkpoints of versions without
    std::vector<DataStage> stages; ///< the last is the present one; none: one from 0 on
    std::vector<OptimizerGroup> groups;
};

struct CheckpointMeta
{
    TrainerState trainer;
    std::string model_config;      ///< config.json text
    std::string model_fingerprint; ///< model_spec.hpp
    std::string layout_note;       ///< "tp 1 pp 1 dp 1 zero 0", informative: readers trust boxes only
    std::string run_ini;           ///< resolved run file of the writing run
    std::string precision;         ///< of the run: fp32, fp64, bf16 (whose model is saved in fp32)
    std::map<std::string, std::string> aliases; ///< "head.weight" -> the tensor that holds it (tied embedding)
};

/// A canonical tensor of the checkpoint in one state.
struct CheckpointTensor
{
    CheckpointState state = CheckpointState::model;
    std::string name;
    Dtype dtype = Dtype::f32;
    std::vector<std::int64_t> shape; ///< global
};

/// A box that a rank holds.
struct CheckpointBox
{
    CheckpointTensor tensor;
    Box box;
};

struct SavedStep
{
    std::string path;
    std::int64_t bytes = 0; ///< of all files
};

/// One control thread of each rank; background threads never communicate. Constructors and commit() are collective over
/// `world`, exchange metadata only, and succeed or throw on all ranks alike. With one rank the error is what went wrong;
/// with several it is an IoError "while saving step 20 to 'ckpt': rank 2: cannot write ... (no space left on device)"
/// with the exit code of that rank's. After a failure before the step is visible nothing of it is left.
class CheckpointWriter
{
  public:
    /// One rank, one file.
    CheckpointWriter(std::string root, CheckpointMeta meta, std::vector<CheckpointBox> boxes);
    /// `boxes`: what this rank holds. Equal boxes on several ranks are replicas; one of them is chosen to write, so that
    /// all have about the same to write. `meta` is the same on all ranks; rank 0 alone looks at `root`, which all must
    /// reach under this name; `world` outlives the writer. `ranks_per_file` consecutive ranks share a shard file; 0: one file
    /// per rank up to 64 ranks, then as many ranks per file as keep 64 files.
    /// @throws InternalError when the boxes overlap or leave an element out, IoError also when the free space is below the
    /// planned bytes x 1.02, naming both
    CheckpointWriter(std::string root, CheckpointMeta meta, std::vector<CheckpointBox> boxes, Communicator& world,
                     std::int64_t ranks_per_file = 0);
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    /// Whether this rank writes a box that it holds; always so with one rank. @throws InternalError for a box not held
    bool assigned(CheckpointState state, const std::string& tensor, const Box& box) const;

    /// `data`: the box in C order, box elements x dtype bytes; may be reused at once. Each assigned box exactly once. Where
    /// the disk refuses, the error comes out of commit(), on all ranks.
    /// @throws InternalError for a box that is not this rank's to write, or is written twice
    void write(CheckpointState state, const std::string& tensor, const Box& box, const void* data);

    /// This rank cannot deliver its boxes: commit() throws on all ranks with this reason.
    void fail(std::exception_ptr error);

    /// @throws InternalError when an assigned box was not written.
    SavedStep commit();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Removes all but the `keep_last` steps under `root` that were committed last (0 keeps all), never the newest valid one.
void apply_retention(const std::string& root, std::int64_t keep_last);

/// Numbers of the committed steps under `root`, ascending; the highest need not be the newest commit (a run that went back
/// to an older step): find_checkpoint() knows. Temporary directories and strangers are not listed.
std::vector<std::int64_t> committed_steps(const std::string& root);

/// Path of step `step` under `root`: root/step_00000020 (the aside copy of it when a replacement was interrupted).
std::string step_path(const std::string& root, std::int64_t step);

/// The step directory that a user means: a step directory itself, or the newest committed step of a directory with steps
/// (what `latest` names unless a newer commit exists), also below `dir`/ckpt of a run directory. When the newest fails a
/// check of sizes and COMMIT, the one before it with a line in `warnings`. Empty string when there is none.
/// @throws FormatError when there are committed steps and none of them is valid: a fresh start would bury them
std::string find_checkpoint(const std::string& dir, std::vector<std::string>* warnings);

/// What `inspect` shows beside meta().
struct CheckpointInfo
{
    struct File
    {
        std::string name;
        std::int64_t bytes = 0, data_bytes = 0, boxes = 0;
    };
    struct Tensor
    {
        CheckpointTensor tensor;
        std::int64_t boxes = 0;
        std::uint64_t digest = 0; ///< the same in every layout
    };
    std::string path, writer, uuid, format_version;
    std::int64_t bytes = 0; ///< of the shard files
    std::vector<File> files;
    std::vector<Tensor> tensors;
};

/// One control thread.
class CheckpointReader
{
  public:
    /// Opens a committed step. Checks COMMIT, manifest, sizes, uuids and that each element is stored exactly once.
    /// @throws FormatError naming the file.
    explicit CheckpointReader(const std::string& step_dir);
    ~CheckpointReader();
    CheckpointReader(const CheckpointReader&) = delete;
    CheckpointReader& operator=(const CheckpointReader&) = delete;

    const CheckpointMeta& meta() const;
    std::vector<CheckpointTensor> tensors() const;
    bool has(CheckpointState state, const std::string& tensor) const;
    CheckpointInfo info() const;
    /// Reads any box of the global tensor into `data` (C order), from whichever stored boxes hold it; checks the CRC of
    /// every block that it touches. @throws FormatError on a missing element or a CRC mismatch (file, dataset, block).
    void read(CheckpointState state, const std::string& tensor, const Box& box, void* data) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

enum class VerifyLevel { size, meta, full };

struct VerifyReport
{
    std::int64_t files = 0, tensors = 0, boxes = 0, bytes = 0;
    std::vector<std::string> faults; ///< each one line: file: what (why)
};

/// Called with the bytes read so far (level full only).
using VerifyProgress = std::function<void(std::int64_t)>;

/// size: manifest sizes, COMMIT digest. meta: opens every file, uuid, flags, tables, all bytes outside the datasets,
/// coverage (each element of every tensor exactly once). full: reads all data, block CRCs and element digests.
/// Faults are reported, not thrown; reading goes on where it can.
VerifyReport verify_checkpoint(const std::string& step_dir, VerifyLevel level, const VerifyProgress& progress = {});

}  // namespace plimsoll
