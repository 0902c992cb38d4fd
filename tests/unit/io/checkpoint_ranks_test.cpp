// Several ranks write one step: who writes what, files that ranks share, and failures that all ranks see alike.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "comm/thread_communicator.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_plan.hpp"
#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/synthetic_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;
using checkpoint::plan_step;
using checkpoint::StepPlan;

CheckpointTensor vector_of(std::int64_t length, const std::string& name = "w")
{
    return make_tensor(CheckpointState::model, name, Dtype::f32, {length});
}

CheckpointBox part_of(const CheckpointTensor& tensor, std::int64_t begin, std::int64_t length)
{
    return planned(tensor, make_box({begin}, {length}));
}

// Bytes that each rank writes.
std::vector<std::int64_t> loads(const StepPlan& plan, std::size_t num_ranks)
{
    std::vector<std::int64_t> bytes(num_ranks, 0);
    for (const checkpoint::FilePlan& file : plan.files)
    {
        for (std::size_t k = 0; k < file.boxes.size(); ++k)
        {
            bytes[static_cast<std::size_t>(file.owners[k])] +=
                file.boxes[k].box.num_elements() * dtype_bytes(file.boxes[k].tensor.dtype);
        }
    }
    return bytes;
}

TEST(CheckpointPlan, ReplicasAreWrittenOnceAndEvenly)
{
    // Four copies of everything: each of 8 tensors is written once, each rank writes two.
    std::vector<std::vector<CheckpointBox>> held(4);
    for (std::vector<CheckpointBox>& boxes : held)
    {
        for (int k = 0; k < 8; ++k) { boxes.push_back(planned_whole(vector_of(100, "w" + std::to_string(k)))); }
    }
    const StepPlan plan = plan_step(held, 1);
    EXPECT_EQ(plan.files.size(), 4U);
    EXPECT_EQ(loads(plan, 4), (std::vector<std::int64_t>{800, 800, 800, 800}));
}

TEST(CheckpointPlan, TheLargestReplicasChooseFirstAndOwnBoxesCount)
{
    // Rank 0 has 1000 of its own; of the shared 600, 500 and 100 elements rank 1 gets what evens it out.
    std::vector<std::vector<CheckpointBox>> held(2);
    held[0] = {planned_whole(vector_of(1000, "own")), planned_whole(vector_of(100, "small")), planned_whole(vector_of(600, "large")),
               planned_whole(vector_of(500, "middle"))};
    held[1] = {planned_whole(vector_of(500, "middle")), planned_whole(vector_of(100, "small")), planned_whole(vector_of(600, "large"))};
    EXPECT_EQ(loads(plan_step(held, 1), 2), (std::vector<std::int64_t>{4400, 4400}));
}

TEST(CheckpointPlan, FilesLookTheSameHoweverReplicasAreListed)
{
    std::vector<std::vector<CheckpointBox>> held(2);
    for (int k = 0; k < 6; ++k) { held[0].push_back(planned_whole(vector_of(10 + k, "w" + std::to_string(k)))); }
    held[1].assign(held[0].rbegin(), held[0].rend());
    const StepPlan plan = plan_step(held, 2);
    ASSERT_EQ(plan.files.size(), 1U);
    for (int k = 0; k < 6; ++k) { EXPECT_EQ(plan.files[0].boxes[static_cast<std::size_t>(k)].tensor.name, "w" + std::to_string(k)); }
}

TEST(CheckpointPlan, NumberOfFiles)
{
    const auto files = [](std::int64_t num_ranks, std::int64_t ranks_per_file) {
        std::vector<std::vector<CheckpointBox>> held(static_cast<std::size_t>(num_ranks));
        for (std::int64_t k = 0; k < num_ranks; ++k) { held[static_cast<std::size_t>(k)] = {part_of(vector_of(num_ranks), k, 1)}; }
        return plan_step(held, ranks_per_file);
    };
    EXPECT_EQ(files(5, 1).files.size(), 5U);
    EXPECT_EQ(files(5, 2).files.size(), 3U);
    EXPECT_EQ(files(5, 2).files[2].creator, 4);
    EXPECT_EQ(files(5, 9).files.size(), 1U);
    EXPECT_EQ(files(64, 0).files.size(), 64U);
    EXPECT_EQ(files(65, 0).files.size(), 33U);
    EXPECT_EQ(files(500, 0).files.size(), 63U);
}

TEST(CheckpointPlan, RanksWithoutBoxesMakeNoFile)
{
    std::vector<std::vector<CheckpointBox>> held(3);
    held[1] = {planned_whole(vector_of(4))};
    const StepPlan plan = plan_step(held, 1);
    ASSERT_EQ(plan.files.size(), 1U);
    EXPECT_EQ(plan.files[0].creator, 1);
}

TEST(CheckpointPlan, FaultsAcrossRanksAreNamed)
{
    const CheckpointTensor tensor = vector_of(8);
    const auto fault = [](std::vector<std::vector<CheckpointBox>> held) { return message_of([&] { plan_step(held, 1); }); };
    EXPECT_EQ(fault({{part_of(tensor, 0, 5)}, {part_of(tensor, 4, 4)}}), "checkpoint plan: model/w: boxes [0 5) and [4 8) overlap");
    EXPECT_EQ(fault({{part_of(tensor, 0, 3)}, {part_of(tensor, 4, 4)}}), "checkpoint plan: model/w: 1 of 8 elements are in no box");
    EXPECT_EQ(fault({{part_of(tensor, 0, 8), part_of(tensor, 0, 8)}, {}}), "checkpoint plan: box [0 8) of model/w is listed twice");
    EXPECT_NE(fault({{part_of(tensor, 0, 4)}, {part_of(vector_of(9), 4, 4)}}).find("tensor.shape == tensor.shape"), std::string::npos);
}

TEST(CheckpointPlan, BoxesComeThroughPacking)
{
    std::vector<CheckpointBox> boxes = small_boxes(3);
    boxes.push_back(planned(make_tensor(CheckpointState::master, "x", Dtype::bf16, {2, 3, 4, 5}), make_box({1, 0, 2, 0}, {1, 3, 2, 5})));
    const std::vector<CheckpointBox> back = checkpoint::unpack_boxes(checkpoint::pack_boxes(boxes));
    ASSERT_EQ(back.size(), boxes.size());
    for (std::size_t k = 0; k < boxes.size(); ++k)
    {
        EXPECT_EQ(back[k].box, boxes[k].box);
        EXPECT_EQ(back[k].tensor.name, boxes[k].tensor.name);
        EXPECT_EQ(back[k].tensor.shape, boxes[k].tensor.shape);
        EXPECT_EQ(back[k].tensor.state, boxes[k].tensor.state);
        EXPECT_EQ(back[k].tensor.dtype, boxes[k].tensor.dtype);
    }
    EXPECT_TRUE(checkpoint::unpack_boxes(checkpoint::pack_boxes({})).empty());
}

class RanksPerFile : public ::testing::TestWithParam<std::int64_t>
{
};

TEST_P(RanksPerFile, FourRanksWriteWhatOneWouldHave)
{
    const TempDir dir(fast_directory());
    const std::vector<CheckpointBox> boxes = small_boxes(5);
    const std::string alone = save_synthetic(dir / "alone", 7, boxes).path;
    std::mutex mutex;
    std::set<std::string> paths;
    run_ranks(4, [&](Communicator& world) {
        const SavedStep saved = save_synthetic(dir / "together", 7, dealt_boxes(boxes, world.rank(), 4), tensor_names(boxes), world,
                                               GetParam());
        const std::lock_guard<std::mutex> lock(mutex);
        paths.insert(saved.path + " " + std::to_string(saved.bytes));
    });
    ASSERT_EQ(paths.size(), 1U) << "all ranks learn the same";
    const std::string path = dir / "together/step_00000007";
    EXPECT_EQ(paths.begin()->find(path + " "), 0U);
    EXPECT_EQ(content_fault(path, 7), "");
    const VerifyReport report = verify_checkpoint(path, VerifyLevel::full);
    EXPECT_TRUE(report.faults.empty()) << report.faults[0];
    const std::int64_t per_file = GetParam() == 0 ? 1 : GetParam();
    EXPECT_EQ(report.files, (4 + per_file - 1) / per_file);
    EXPECT_EQ(report.boxes, static_cast<std::int64_t>(boxes.size())) << "replicas are stored once";
    const CheckpointInfo one = CheckpointReader(alone).info();
    const CheckpointInfo four = CheckpointReader(path).info();
    ASSERT_EQ(one.tensors.size(), four.tensors.size());
    std::map<std::string, std::uint64_t> digests;
    for (const auto& tensor : one.tensors) { digests[checkpoint::tensor_path(tensor.tensor.state, tensor.tensor.name)] = tensor.digest; }
    for (const auto& tensor : four.tensors)
    {
        EXPECT_EQ(digests.at(checkpoint::tensor_path(tensor.tensor.state, tensor.tensor.name)), tensor.digest);
    }
    const CheckpointReader reader(path);
    EXPECT_EQ(reader.meta().trainer.groups.at(0).tensors.size(), 4U);
}

INSTANTIATE_TEST_SUITE_P(All, RanksPerFile, ::testing::Values(0, 1, 2, 3, 4));

TEST(CheckpointRanks, ABoxIsWrittenByExactlyOneOfItsHolders)
{
    const TempDir dir(fast_directory());
    const std::vector<CheckpointBox> boxes = small_boxes(2);
    std::mutex mutex;
    std::map<std::string, int> writers;
    run_ranks(3, [&](Communicator& world) {
        CheckpointWriter writer(dir.path(), make_meta(1, tensor_names(boxes)), boxes, world);  // all hold all
        for (const CheckpointBox& box : boxes)
        {
            if (!writer.assigned(box.tensor.state, box.tensor.name, box.box))
            {
                const std::string refusal = message_of([&] { writer.write(box.tensor.state, box.tensor.name, box.box, nullptr); });
                EXPECT_NE(refusal.find("is another rank's to write"), std::string::npos);
                continue;
            }
            writer.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, 1).data());
            const std::lock_guard<std::mutex> lock(mutex);
            ++writers[checkpoint::tensor_path(box.tensor.state, box.tensor.name) + checkpoint::box_text(box.box)];
        }
        EXPECT_THROW((void)writer.assigned(CheckpointState::master, "w", boxes[0].box), InternalError);
        writer.commit();
    });
    EXPECT_EQ(writers.size(), boxes.size());
    for (const auto& entry : writers) { EXPECT_EQ(entry.second, 1) << entry.first; }
    EXPECT_EQ(content_fault(dir / "step_00000001", 1), "");
}

// What each rank throws when `body` runs on 4 of them.
template<class Body>
std::vector<std::string> messages_of_ranks(Body&& body)
{
    std::vector<std::string> messages(4);
    run_ranks(4, [&](Communicator& world) {
        messages[static_cast<std::size_t>(world.rank())] = message_of([&] { body(world); });
    });
    return messages;
}

std::vector<std::string> names_in(const std::string& directory)
{
    return list_directory(directory);
}

TEST(CheckpointRanks, PlanFaultsAreSeenByAllBeforeAnythingIsMade)
{
    const TempDir dir(fast_directory());
    const std::vector<std::string> messages = messages_of_ranks([&](Communicator& world) {
        const std::int64_t begin = world.rank() == 2 ? 3 : 4 * world.rank();
        CheckpointWriter(dir.path(), make_meta(1, {}), {part_of(vector_of(16), begin, 4)}, world);
    });
    for (const std::string& message : messages) { EXPECT_NE(message.find("boxes [0 4) and [3 7) overlap"), std::string::npos) << message; }
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(CheckpointRanks, TooLittleSpaceIsSaidByAllWithTheRankThatLooked)
{
    const TempDir dir;
    const std::int64_t huge = std::int64_t{1} << 40;
    const std::vector<std::string> messages = messages_of_ranks([&](Communicator& world) {
        CheckpointWriter(dir.path(), make_meta(12, {}), {part_of(vector_of(4 * huge), world.rank() * huge, huge)}, world);
    });
    for (const std::string& message : messages)
    {
        EXPECT_EQ(message.find("while saving step 12 to '" + dir.path() + "': rank 0: cannot save "), 0U) << message;
        EXPECT_EQ(message, messages[0]);
    }
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(CheckpointRanks, DiskFullOnAnyRankIsAFailureOfAllAndLeavesOnlyTheStepBefore)
{
    const TempDir dir(fast_directory());
    const std::vector<CheckpointBox> boxes = small_boxes(4);
    save_synthetic(dir.path(), 1, boxes);
    int failures = 0;
    std::set<std::string> failed_ranks;
    for (std::int64_t limit = 0;; limit += 211)
    {
        ::setenv("PLIMSOLL_FAULT_ENOSPC_AFTER", std::to_string(limit).c_str(), 1);
        reload_faults();
        const std::vector<std::string> messages = messages_of_ranks([&](Communicator& world) {
            // Each time another rank is ahead: on a busy machine it would always be the same one.
            if (world.rank() != limit / 211 % 4) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
            save_synthetic(dir.path(), 2, dealt_boxes(boxes, world.rank(), 4), tensor_names(boxes), world, 2);
        });
        ::unsetenv("PLIMSOLL_FAULT_ENOSPC_AFTER");
        reload_faults();
        if (messages[0].empty()) { break; }
        ++failures;
        for (const std::string& message : messages)
        {
            ASSERT_EQ(message.find("while saving step 2 to '" + dir.path() + "': rank "), 0U) << message;
            ASSERT_NE(message.find("(no space left on device)"), std::string::npos) << message;
            ASSERT_EQ(message, messages[0]);
        }
        failed_ranks.insert(messages[0].substr(messages[0].find(": rank "), 8));
        // Once the new step is visible only `latest` can still fail; the step is complete then.
        const std::vector<std::int64_t> steps = committed_steps(dir.path());
        ASSERT_EQ(content_fault(find_checkpoint(dir.path(), nullptr), steps.back()), "") << limit;
        if (steps.size() == 2) { remove_tree(dir / "step_00000002"); }
        ASSERT_EQ(names_in(dir.path()), (std::vector<std::string>{"latest", "step_00000001"})) << limit;
    }
    EXPECT_GT(failures, 10);
    EXPECT_GT(failed_ranks.size(), 1U);
    EXPECT_EQ(content_fault(dir / "step_00000002", 2), "");
}

TEST(CheckpointRanks, ARankThatCannotDeliverNamesItselfAndItsReason)
{
    const TempDir dir(fast_directory());
    const std::vector<CheckpointBox> boxes = small_boxes(4);
    std::mutex mutex;
    std::set<int> exit_codes;
    const std::vector<std::string> messages = messages_of_ranks([&](Communicator& world) {
        const std::vector<CheckpointBox> held = dealt_boxes(boxes, world.rank(), 4);
        CheckpointWriter writer(dir.path(), make_meta(3, tensor_names(boxes)), held, world);
        if (world.rank() == 2)
        {
            FormatError error("gradient.h5: damaged");
            error.set_exit_code(ExitCode::fatal);
            writer.fail(std::make_exception_ptr(error));
        }
        for (const CheckpointBox& box : held)
        {
            if (!writer.assigned(box.tensor.state, box.tensor.name, box.box)) { continue; }
            writer.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, 3).data());
        }
        try
        {
            writer.commit();
        }
        catch (const IoError& error)
        {
            const std::lock_guard<std::mutex> lock(mutex);
            exit_codes.insert(static_cast<int>(error.exit_code()));
            throw;
        }
    });
    for (const std::string& message : messages)
    {
        EXPECT_EQ(message, "while saving step 3 to '" + dir.path() + "': rank 2: gradient.h5: damaged");
    }
    EXPECT_EQ(exit_codes, (std::set<int>{93}));
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(CheckpointRanks, AnAssignedBoxThatIsMissingFailsTheCommitOfAll)
{
    const TempDir dir(fast_directory());
    const std::vector<std::string> messages = messages_of_ranks([&](Communicator& world) {
        const CheckpointBox box = part_of(vector_of(16), 4 * world.rank(), 4);
        CheckpointWriter writer(dir.path(), make_meta(1, {"w"}), {box}, world);
        if (world.rank() != 1) { writer.write(box.tensor.state, "w", box.box, box_content(box.tensor, box.box, 1).data()); }
        writer.commit();
    });
    for (const std::string& message : messages)
    {
        EXPECT_NE(message.find("rank 1: box [4 8) of model/w was not written"), std::string::npos) << message;
    }
    EXPECT_TRUE(names_in(dir.path()).empty());
}

// A rank that ends in the middle of its writing takes the others with it; nothing of the step stays.
TEST(CheckpointRanks, ARankThatDiesInTheMiddleLeavesNothing)
{
    const TempDir dir(fast_directory());
    const std::vector<CheckpointBox> boxes = small_boxes(4);
    save_synthetic(dir.path(), 1, boxes);
    for (const std::int64_t dying : {0, 3})
    {
        const std::string message = message_of([&] {
            run_ranks(4, [&](Communicator& world) {
                const std::vector<CheckpointBox> held = dealt_boxes(boxes, world.rank(), 4);
                CheckpointWriter writer(dir.path(), make_meta(2, tensor_names(boxes)), held, world);
                for (const CheckpointBox& box : held)
                {
                    if (!writer.assigned(box.tensor.state, box.tensor.name, box.box)) { continue; }
                    writer.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, 2).data());
                    if (world.rank() == dying) { throw OutOfMemory("no more"); }
                }
                writer.commit();
            });
        });
        EXPECT_NE(message.find("no more"), std::string::npos) << message;
        EXPECT_EQ(names_in(dir.path()), (std::vector<std::string>{"latest", "step_00000001"}));
    }
    run_ranks(4, [&](Communicator& world) {
        save_synthetic(dir.path(), 2, dealt_boxes(boxes, world.rank(), 4), tensor_names(boxes), world);
    });
    EXPECT_EQ(content_fault(dir / "step_00000002", 2), "");
}

// Boxes of several blocks, two ranks in one file.
TEST(CheckpointRanks, LargeBoxesInSharedFiles)
{
    const TempDir dir(fast_directory());
    const CheckpointTensor large = make_tensor(CheckpointState::model, "large", Dtype::f32, {12, 1000003});
    run_ranks(2, [&](Communicator& world) {
        const CheckpointBox box = planned(large, make_box({6 * world.rank(), 0}, {6, 1000003}));
        save_synthetic(dir.path(), 1, {box}, {"large"}, world, 2);
    });
    EXPECT_EQ(content_fault(dir / "step_00000001", 1), "");
    const VerifyReport report = verify_checkpoint(dir / "step_00000001", VerifyLevel::full);
    EXPECT_TRUE(report.faults.empty()) << report.faults[0];
    EXPECT_EQ(report.files, 1);
}

}  // namespace
}  // namespace plimsoll
