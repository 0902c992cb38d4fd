// What each rank holds goes to all ranks; the plan that follows says who writes what (checkpoint_plan.hpp), and the step
// writer does it.

#include <map>
#include <utility>

#include "base/error.hpp"
#include "comm/exchange.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_plan.hpp"
#include "io/checkpoint_step_writer.hpp"

namespace plimsoll
{

using namespace checkpoint;

namespace
{

/// A box that this rank holds and its place in the step.
struct HeldBox
{
    Box box;
    std::size_t file = 0;
    std::size_t row = 0;
    bool assigned = false; ///< this rank writes it
    bool written = false;
};

using TensorKey = std::pair<CheckpointState, std::string>;

}  // namespace

struct CheckpointWriter::Impl
{
    std::unique_ptr<Communicator> self; ///< of the one-rank form
    std::string context;
    std::map<TensorKey, std::vector<HeldBox>> held;
    std::unique_ptr<StepWriter> step;
    bool committed = false;

    void begin(const std::string& root, CheckpointMeta meta, const std::vector<CheckpointBox>& boxes, Communicator& world,
               std::int64_t ranks_per_file);
    void find_places(std::int64_t rank);
    HeldBox& find(CheckpointState state, const std::string& tensor, const Box& box);
    SavedStep commit();
};

void CheckpointWriter::Impl::begin(const std::string& root, CheckpointMeta meta, const std::vector<CheckpointBox>& boxes,
                                   Communicator& world, std::int64_t ranks_per_file)
{
    for (const CheckpointBox& box : boxes)
    {
        HeldBox entry;
        entry.box = box.box;
        held[{box.tensor.state, box.tensor.name}].push_back(std::move(entry));
    }
    StepPlan plan;
    {
        std::vector<std::vector<CheckpointBox>> all;
        for (const std::string& part : all_gather_bytes(world, pack_boxes(boxes))) { all.push_back(unpack_boxes(part)); }
        plan = plan_step(all, ranks_per_file);
    }
    StepWriter::Settings settings;
    settings.root = root;
    settings.uuid = make_uuid();
    step = std::make_unique<StepWriter>(std::move(settings), std::move(meta), std::move(plan), world);
    find_places(world.rank());
}

void CheckpointWriter::Impl::find_places(std::int64_t rank)
{
    const std::vector<FilePlan>& files = step->plan().files;
    for (std::size_t file = 0; file < files.size(); ++file)
    {
        for (std::size_t row = 0; row < files[file].boxes.size(); ++row)
        {
            if (files[file].owners[row] != rank) { continue; }
            const CheckpointBox& box = files[file].boxes[row];
            HeldBox& entry = find(box.tensor.state, box.tensor.name, box.box);
            entry.assigned = true;
            entry.file = file;
            entry.row = row;
        }
    }
}

HeldBox& CheckpointWriter::Impl::find(CheckpointState state, const std::string& tensor, const Box& box)
{
    const auto found = held.find({state, tensor});
    if (found != held.end())
    {
        for (HeldBox& entry : found->second)
        {
            if (entry.box == box) { return entry; }
        }
    }
    throw InternalError(fmt::format("box {} of {} is not planned", box_text(box), tensor_path(state, tensor)));
}

SavedStep CheckpointWriter::Impl::commit()
{
    for (const auto& entry : held)
    {
        for (const HeldBox& box : entry.second)
        {
            if (!box.assigned || box.written) { continue; }
            step->fail(std::make_exception_ptr(InternalError(fmt::format(
                "box {} of {} was not written", box_text(box.box), tensor_path(entry.first.first, entry.first.second)))));
        }
    }
    committed = true;
    step->seal();
    return step->publish();
}

CheckpointWriter::CheckpointWriter(std::string root, CheckpointMeta meta, std::vector<CheckpointBox> boxes)
    : impl_(std::make_unique<Impl>())
{
    impl_->self = make_self_communicator("checkpoint");
    impl_->context = fmt::format("while saving step {} to '{}'", meta.trainer.step, root);
    with_context(impl_->context, [&] { impl_->begin(root, std::move(meta), boxes, *impl_->self, 1); });
}

CheckpointWriter::CheckpointWriter(std::string root, CheckpointMeta meta, std::vector<CheckpointBox> boxes,
                                   Communicator& world, std::int64_t ranks_per_file)
    : impl_(std::make_unique<Impl>())
{
    impl_->context = fmt::format("while saving step {} to '{}'", meta.trainer.step, root);
    with_context(impl_->context, [&] { impl_->begin(root, std::move(meta), boxes, world, ranks_per_file); });
}

CheckpointWriter::~CheckpointWriter() = default;

bool CheckpointWriter::assigned(CheckpointState state, const std::string& tensor, const Box& box) const
{
    return impl_->find(state, tensor, box).assigned;
}

void CheckpointWriter::write(CheckpointState state, const std::string& tensor, const Box& box, const void* data)
{
    EXPECT(!impl_->committed);
    HeldBox& entry = impl_->find(state, tensor, box);
    if (!entry.assigned || entry.written)
    {
        throw InternalError(fmt::format("box {} of {} {}", box_text(box), tensor_path(state, tensor),
                                        entry.assigned ? "was written twice" : "is another rank's to write"));
    }
    entry.written = true;
    impl_->step->write_box(entry.file, entry.row, data);
}

void CheckpointWriter::fail(std::exception_ptr error)
{
    impl_->step->fail(std::move(error));
}

SavedStep CheckpointWriter::commit()
{
    EXPECT(!impl_->committed);
    return with_context(impl_->context, [&] { return impl_->commit(); });
}

}  // namespace plimsoll
