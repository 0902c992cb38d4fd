#include "io/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_shard.hpp"
#include "io/checkpoint_steps.hpp"
#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/synthetic_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

std::vector<std::string> visible_names(const std::string& root)
{
    std::vector<std::string> names;
    for (const std::string& name : list_directory(root)) { names.push_back(name); }
    return names;
}

TEST(CheckpointWriter, RoundTripOfEveryState)
{
    const TempDir dir;
    const SavedStep saved = save_synthetic(dir.path(), 20, small_boxes(3));
    EXPECT_EQ(saved.path, dir / "step_00000020");
    EXPECT_EQ(content_fault(saved.path, 20), "");
    EXPECT_EQ(visible_names(dir.path()), (std::vector<std::string>{"latest", "step_00000020"}));
    EXPECT_EQ(visible_names(saved.path), (std::vector<std::string>{"COMMIT", "manifest.json", "shard_00000_of_00001.h5"}));
    EXPECT_EQ(read_text_file(dir / "latest"), "step_00000020\n");
    std::int64_t bytes = 0;
    for (const std::string& name : visible_names(saved.path)) { bytes += file_size(saved.path + "/" + name); }
    EXPECT_EQ(saved.bytes, bytes);
    EXPECT_TRUE(verify_checkpoint(saved.path, VerifyLevel::full).faults.empty());
}

TEST(CheckpointWriter, MetaComesBackWhole)
{
    const TempDir dir;
    CheckpointMeta meta = make_meta(7, {"scale", "embed_tokens.weight"});
    OptimizerGroup other = meta.trainer.groups[0];
    other.name = "no_decay";
    other.weight_decay = 0;
    other.tensors = {"layers.0.input_norm.weight"};
    meta.trainer.groups.push_back(other);
    meta.aliases["head.weight"] = "embed_tokens.weight";
    const std::vector<CheckpointBox> boxes = small_boxes(1);
    {
        CheckpointWriter writer(dir.path(), meta, boxes);
        for (const CheckpointBox& box : boxes)
        {
            writer.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, 7).data());
        }
        writer.commit();
    }
    const CheckpointReader reader(dir / "step_00000007");
    const CheckpointMeta& back = reader.meta();
    EXPECT_EQ(back.trainer.step, 7);
    EXPECT_EQ(back.trainer.consumed_samples, meta.trainer.consumed_samples);
    EXPECT_EQ(back.trainer.consumed_tokens, meta.trainer.consumed_tokens);
    EXPECT_EQ(back.trainer.seed, meta.trainer.seed);
    EXPECT_EQ(back.trainer.plan, meta.trainer.plan);
    ASSERT_EQ(back.trainer.stages.size(), meta.trainer.stages.size());
    for (std::size_t i = 0; i < meta.trainer.stages.size(); ++i)
    {
        EXPECT_EQ(back.trainer.stages[i].base, meta.trainer.stages[i].base);
        EXPECT_EQ(back.trainer.stages[i].plan_hash, meta.trainer.stages[i].plan_hash);
    }
    EXPECT_EQ(back.trainer.data_order, meta.trainer.data_order);
    EXPECT_EQ(back.trainer.plan_hash, meta.trainer.plan_hash);
    EXPECT_EQ(back.trainer.tokenizer, meta.trainer.tokenizer);
    EXPECT_EQ(back.model_config, meta.model_config);
    EXPECT_EQ(back.model_fingerprint, meta.model_fingerprint);
    EXPECT_EQ(back.layout_note, meta.layout_note);
    EXPECT_EQ(back.run_ini, meta.run_ini);
    EXPECT_EQ(back.precision, meta.precision);
    EXPECT_EQ(back.aliases, meta.aliases);
    ASSERT_EQ(back.trainer.groups.size(), 2U);
    EXPECT_EQ(back.trainer.groups[0].tensors, (std::vector<std::string>{"embed_tokens.weight", "scale"}));
    EXPECT_EQ(back.trainer.groups[0].lr, 6e-4);
    EXPECT_EQ(back.trainer.groups[0].beta2, 0.95);
    EXPECT_EQ(back.trainer.groups[0].step, 7);
    EXPECT_EQ(back.trainer.groups[1].name, "no_decay");
    EXPECT_EQ(back.trainer.groups[1].weight_decay, 0);
    EXPECT_EQ(back.trainer.groups[1].tensors, (std::vector<std::string>{"layers.0.input_norm.weight"}));
    EXPECT_TRUE(reader.has(CheckpointState::exp_avg, "scale"));
    EXPECT_FALSE(reader.has(CheckpointState::master, "scale"));
    EXPECT_FALSE(reader.has(CheckpointState::model, "head.weight"));
}

class CheckpointOfType : public ::testing::TestWithParam<Dtype>
{
};

// bf16 runs will store model in bf16 and optim/master in f32; the format knows every type in every state.
TEST_P(CheckpointOfType, ModelInThatTypeAndAnF32MasterComeBack)
{
    const TempDir dir;
    const CheckpointTensor model = make_tensor(CheckpointState::model, "w", GetParam(), {7, 9});
    const CheckpointTensor master = make_tensor(CheckpointState::master, "w", Dtype::f32, {7, 9});
    const SavedStep saved = save_synthetic(
        dir.path(), 3, {planned(model, make_box({0, 0}, {7, 4})), planned(model, make_box({0, 4}, {7, 5})), planned_whole(master)});
    EXPECT_EQ(content_fault(saved.path, 3), "");
    const VerifyReport report = verify_checkpoint(saved.path, VerifyLevel::full);
    EXPECT_TRUE(report.faults.empty()) << report.faults[0];
    EXPECT_EQ(report.tensors, 2);
    EXPECT_EQ(report.boxes, 3);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointOfType,
                         ::testing::Values(Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::f8_e4m3, Dtype::f8_e5m2),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

// Tensors cut into random boxes, read back by other random boxes; large enough for several CRC blocks once.
TEST(CheckpointReader, AnyBoxFromAnyStoredBoxes)
{
    const TempDir dir;
    std::mt19937 random(2);
    const auto pick = [&random](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, {13, 6, 11});
    std::vector<CheckpointBox> boxes;
    for (std::int64_t a = 0; a < 13;)
    {
        const std::int64_t rows = std::min<std::int64_t>(pick(1, 5), 13 - a);
        const std::int64_t cut = pick(0, 11);
        boxes.push_back(planned(tensor, make_box({a, 0, 0}, {rows, 6, cut})));
        boxes.push_back(planned(tensor, make_box({a, 0, cut}, {rows, 6, 11 - cut})));
        a += rows;
    }
    const SavedStep saved = save_synthetic(dir.path(), 5, boxes);
    const CheckpointReader reader(saved.path);
    for (int round = 0; round < 200; ++round)
    {
        Box box;
        for (const std::int64_t extent : tensor.shape)
        {
            box.offset.push_back(pick(0, extent));
            box.shape.push_back(pick(0, extent - box.offset.back()));
        }
        const std::vector<char> wanted = box_content(tensor, box, 5);
        std::vector<char> found(wanted.size());
        reader.read(tensor.state, tensor.name, box, found.data());
        ASSERT_EQ(found, wanted) << checkpoint::box_text(box);
    }
    EXPECT_NE(message_of([&] { reader.read(tensor.state, "v", boxes[0].box, nullptr); }).find("holds no 'model/v'"),
              std::string::npos);
    EXPECT_NE(message_of([&] { reader.read(tensor.state, "w", make_box({0, 0, 8}, {1, 1, 4}), nullptr); })
                  .find("box [0 1) x [0 1) x [8 12) is not inside model/w of shape [13, 6, 11]"),
              std::string::npos);
}

TEST(CheckpointReader, BoxesOfSeveralBlocksAndUnalignedTails)
{
    const TempDir dir;
    // 40 MB and 17 MB - 4 bytes: blocks of 16 MiB, tails that are no multiple of 4 KiB.
    const CheckpointTensor large = make_tensor(CheckpointState::model, "large", Dtype::f32, {10, 1000003});
    const CheckpointTensor odd = make_tensor(CheckpointState::exp_avg, "large", Dtype::f64, {2125001});
    const SavedStep saved = save_synthetic(dir.path(), 1, {planned_whole(large), planned_whole(odd)});
    const CheckpointReader reader(saved.path);
    for (const Box& box : {make_box({0, 999900}, {10, 103}), make_box({3, 0}, {4, 1000003}), make_box({4, 194000}, {1, 2000})})
    {
        const std::vector<char> wanted = box_content(large, box, 1);
        std::vector<char> found(wanted.size());
        reader.read(large.state, large.name, box, found.data());
        EXPECT_EQ(found, wanted) << checkpoint::box_text(box);
    }
    EXPECT_EQ(content_fault(saved.path, 1), "");
    EXPECT_TRUE(verify_checkpoint(saved.path, VerifyLevel::full).faults.empty());
}

TEST(CheckpointReader, DigestsDoNotDependOnTheBoxes)
{
    const TempDir dir;
    const auto digests = [&](std::int64_t parts) {
        const SavedStep saved = save_synthetic(dir / std::to_string(parts), 4, small_boxes(parts));
        std::vector<std::uint64_t> list;
        for (const CheckpointInfo::Tensor& tensor : CheckpointReader(saved.path).info().tensors) { list.push_back(tensor.digest); }
        return list;
    };
    EXPECT_EQ(digests(1), digests(4));
}

TEST(CheckpointReader, InfoCountsFilesBoxesAndBytes)
{
    const TempDir dir;
    const SavedStep saved = save_synthetic(dir.path(), 4, small_boxes(3));
    const CheckpointInfo info = CheckpointReader(saved.path).info();
    EXPECT_EQ(info.format_version, "1.0");
    EXPECT_EQ(info.tensors.size(), 12U);
    EXPECT_EQ(info.tensors[0].boxes, 3);
    ASSERT_EQ(info.files.size(), 1U);
    EXPECT_EQ(info.files[0].boxes, 18);
    EXPECT_EQ(info.files[0].data_bytes, 3 * 4 * (60 + 5 + 1));
    EXPECT_EQ(info.bytes, file_size(saved.path + "/shard_00000_of_00001.h5"));
    EXPECT_EQ(info.uuid.size(), 36U);
}

TEST(CheckpointWriter, MetadataIsBelowAThousandth)
{
    const TempDir dir;
    std::vector<CheckpointBox> boxes;
    for (int k = 0; k < 20; ++k)
    {
        boxes.push_back(planned_whole(make_tensor(CheckpointState::model, fmt::format("layers.{}.w", k), Dtype::f32, {500, 1001})));
        boxes.push_back(planned_whole(make_tensor(CheckpointState::model, fmt::format("layers.{}.norm", k), Dtype::f32, {1001})));
    }
    const SavedStep saved = save_synthetic(dir.path(), 1, boxes);
    const std::int64_t data = 20 * 4 * (500 * 1001 + 1001);
    EXPECT_LT(saved.bytes - data, data / 1000 * 4) << "40 MB: 0.4 %; a realistic size is far below 0.1 %";
}

TEST(CheckpointWriter, PlanFaultsAreFoundBeforeAnythingIsMade)
{
    const TempDir dir;
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, {4});
    EXPECT_NE(message_of([&] { CheckpointWriter(dir.path(), make_meta(1, {}), {planned(tensor, make_box({0}, {3}))}); })
                  .find("model/w: 1 of 4 elements are in no box"),
              std::string::npos);
    EXPECT_THROW(CheckpointWriter(dir.path(), make_meta(1, {}), {planned_whole(tensor), planned_whole(tensor)}), InternalError);
    EXPECT_THROW(CheckpointWriter(dir.path(), make_meta(1, {"not there"}), {planned_whole(tensor)}), InternalError);
    EXPECT_TRUE(visible_names(dir.path()).empty());
}

TEST(CheckpointWriter, EachBoxExactlyOnce)
{
    const TempDir dir;
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, {4});
    const float data[4] = {1, 2, 3, 4};
    CheckpointWriter writer(dir.path(), make_meta(1, {"w"}),
                            {planned(tensor, make_box({0}, {2})), planned(tensor, make_box({2}, {2}))});
    writer.write(tensor.state, "w", make_box({2}, {2}), data);
    EXPECT_NE(message_of([&] { writer.write(tensor.state, "w", make_box({2}, {2}), data); }).find("was written twice"),
              std::string::npos);
    EXPECT_NE(message_of([&] { writer.write(tensor.state, "w", make_box({1}, {2}), data); }).find("is not planned"),
              std::string::npos);
    EXPECT_NE(message_of([&] { writer.commit(); }).find("box [0 2) of model/w was not written"), std::string::npos);
}

TEST(CheckpointWriter, WithoutCommitNothingIsLeft)
{
    const TempDir dir;
    {
        CheckpointWriter writer(dir.path(), make_meta(1, {"scale"}), small_boxes());
        EXPECT_EQ(visible_names(dir.path()).size(), 1U);
    }
    EXPECT_TRUE(visible_names(dir.path()).empty());
}

TEST(CheckpointWriter, TemporaryDirectoriesOfTheDeadAreRemovedThoseOfTheLivingAreNot)
{
    const TempDir dir;
    make_directories(dir / ".tmp_step_00000009.dead/sub");
    write_file_atomically(dir / ".tmp_step_00000009.dead/sub/x", "x");
    CheckpointWriter living(dir.path(), make_meta(1, {"scale"}), small_boxes());
    EXPECT_FALSE(path_exists(dir / ".tmp_step_00000009.dead"));
    save_synthetic(dir.path(), 2, small_boxes());
    for (const CheckpointBox& box : small_boxes())
    {
        living.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, 1).data());
    }
    EXPECT_EQ(content_fault(living.commit().path, 1), "");
    EXPECT_EQ(committed_steps(dir.path()), (std::vector<std::int64_t>{1, 2}));
}

TEST(CheckpointWriter, NotEnoughSpaceIsSaidBeforeTheFirstByte)
{
    const TempDir dir;
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, {std::int64_t{1} << 40});
    const std::string message = message_of([&] { CheckpointWriter(dir.path(), make_meta(12, {"w"}), {planned_whole(tensor)}); });
    EXPECT_EQ(message.find("while saving step 12 to '" + dir.path() + "': cannot save 4.49 TB to '" + dir.path() + "' (free space "),
              0U)
        << message;
    EXPECT_TRUE(visible_names(dir.path()).empty());
}

// Fails the save at every possible number of written bytes: nothing of it may ever be seen.
TEST(CheckpointWriter, DiskFullAnywhereLeavesOnlyTheStepBefore)
{
    const TempDir dir(fast_directory());  // syncing is not what is tested
    save_synthetic(dir.path(), 1, small_boxes());
    int failures = 0;
    for (std::int64_t limit = 0;; limit += 97)
    {
        ::setenv("PLIMSOLL_FAULT_ENOSPC_AFTER", std::to_string(limit).c_str(), 1);
        reload_faults();
        const std::string message = message_of([&] { save_synthetic(dir.path(), 2, small_boxes()); });
        ::unsetenv("PLIMSOLL_FAULT_ENOSPC_AFTER");
        reload_faults();
        if (message.empty()) { break; }
        ++failures;
        ASSERT_EQ(message.find("while saving step 2 to '" + dir.path() + "'"), 0U) << message;
        ASSERT_NE(message.find("(no space left on device)"), std::string::npos) << message;
        // Once the new step is visible only `latest` can still fail; the step is complete then.
        const std::vector<std::int64_t> steps = committed_steps(dir.path());
        const std::string found = find_checkpoint(dir.path(), nullptr);
        ASSERT_EQ(content_fault(found, steps.back()), "") << limit;
        if (steps.size() == 2) { remove_tree(dir / "step_00000002"); }
        ASSERT_EQ(visible_names(dir.path()), (std::vector<std::string>{"latest", "step_00000001"})) << limit;
    }
    EXPECT_GT(failures, 10);
    EXPECT_EQ(content_fault(dir / "step_00000002", 2), "");
}

class ReplacedStep : public ::testing::TestWithParam<const char*>
{
};

TEST_P(ReplacedStep, NewContentTakesThePlaceOfTheOld)
{
    const TempDir dir;
    save_synthetic(dir.path(), 5, small_boxes(1));
    ::setenv("PLIMSOLL_FAULT_NO_EXCHANGE", GetParam(), 1);
    reload_faults();
    save_synthetic(dir.path(), 5, small_boxes(4));
    ::unsetenv("PLIMSOLL_FAULT_NO_EXCHANGE");
    reload_faults();
    EXPECT_EQ(content_fault(dir / "step_00000005", 5), "");
    EXPECT_EQ(CheckpointReader(dir / "step_00000005").info().tensors[0].boxes, 4);
    EXPECT_EQ(visible_names(dir.path()), (std::vector<std::string>{"latest", "step_00000005"}));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutExchange, ReplacedStep, ::testing::Values("0", "1"));

TEST(ReplacedStep, InterruptedReplacementKeepsTheOldStep)
{
    const TempDir dir;
    save_synthetic(dir.path(), 5, small_boxes());
    rename_path(dir / "step_00000005", dir / ".old_step_00000005.0123");
    EXPECT_EQ(committed_steps(dir.path()), std::vector<std::int64_t>{5});
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), dir / ".old_step_00000005.0123");
    EXPECT_EQ(step_path(dir.path(), 5), dir / ".old_step_00000005.0123");
    save_synthetic(dir.path(), 6, small_boxes());
    EXPECT_EQ(committed_steps(dir.path()), (std::vector<std::int64_t>{5, 6}));
    EXPECT_EQ(content_fault(dir / "step_00000005", 5), "");
}

TEST(Steps, EmptyMissingAndForeignDirectoriesHaveNone)
{
    const TempDir dir;
    EXPECT_TRUE(committed_steps(dir.path()).empty());
    EXPECT_TRUE(committed_steps(dir / "missing").empty());
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), "");
    EXPECT_EQ(find_checkpoint(dir / "missing", nullptr), "");
    for (const char* name : {"step_1", "step_000000020", "step_0000002x", "steps", ".tmp_step_00000003.x"})
    {
        make_directories(dir / name);
        write_file_atomically((dir / name) + "/COMMIT", "x");
    }
    make_directories(dir / "step_00000004");  // no COMMIT
    EXPECT_TRUE(committed_steps(dir.path()).empty());
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), "");
}

TEST(Steps, FoundFromStepDirectoryRootOrRun)
{
    const TempDir dir;
    const std::string root = dir / "run/ckpt";
    save_synthetic(root, 10, small_boxes());
    save_synthetic(root, 20, small_boxes());
    EXPECT_EQ(committed_steps(root), (std::vector<std::int64_t>{10, 20}));
    EXPECT_EQ(find_checkpoint(root, nullptr), root + "/step_00000020");
    EXPECT_EQ(find_checkpoint(dir / "run", nullptr), root + "/step_00000020");
    EXPECT_EQ(find_checkpoint(root + "/step_00000010", nullptr), root + "/step_00000010");
    EXPECT_EQ(step_path(root, 10), root + "/step_00000010");
    EXPECT_EQ(step_path(root, 11), root + "/step_00000011");
}

TEST(Steps, NewestMeansCommittedLast)
{
    const TempDir dir;
    save_synthetic(dir.path(), 10, small_boxes());
    save_synthetic(dir.path(), 20, small_boxes());
    save_synthetic(dir.path(), 15, small_boxes());  // a run that went back to step 10
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), dir / "step_00000015");
    write_file_atomically(dir / "latest", "step_00000020\n");  // a crash before `latest` was replaced
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), dir / "step_00000015");
    remove_tree(dir / "latest");
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), dir / "step_00000015");
}

TEST(Steps, DamagedNewestFallsBackWithAWarning)
{
    const TempDir dir;
    save_synthetic(dir.path(), 10, small_boxes());
    save_synthetic(dir.path(), 20, small_boxes());
    remove_tree(dir / "step_00000020/shard_00000_of_00001.h5");
    std::vector<std::string> warnings;
    EXPECT_EQ(find_checkpoint(dir.path(), &warnings), dir / "step_00000010");
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(warnings[0], (dir / "step_00000020/shard_00000_of_00001.h5") +
                               ": missing (checkpoint skipped, the one before it is tried)");
    write_file_atomically(dir / "step_00000010/manifest.json", "{}");
    const std::string message = message_of([&] { (void)find_checkpoint(dir.path(), nullptr); });
    EXPECT_EQ(message.find("no valid checkpoint in '" + dir.path() + "' ("), 0U) << message;
}

TEST(Retention, KeepsTheLastCommittedAndNeverLosesTheNewestValid)
{
    const TempDir dir;
    for (const std::int64_t step : {10, 20, 30, 40}) { save_synthetic(dir.path(), step, small_boxes()); }
    apply_retention(dir.path(), 0);
    EXPECT_EQ(committed_steps(dir.path()).size(), 4U);
    apply_retention(dir.path(), 3);
    EXPECT_EQ(committed_steps(dir.path()), (std::vector<std::int64_t>{20, 30, 40}));
    remove_tree(dir / "step_00000040/shard_00000_of_00001.h5");
    remove_tree(dir / "step_00000030/shard_00000_of_00001.h5");
    apply_retention(dir.path(), 1);
    EXPECT_EQ(find_checkpoint(dir.path(), nullptr), dir / "step_00000020");
    EXPECT_EQ(committed_steps(dir.path()), (std::vector<std::int64_t>{20, 40}));
    for (const std::string& name : visible_names(dir.path())) { EXPECT_NE(name[0], '.') << name; }
}

// 4.5 GiB in one box that is never written: it reads as zeros, and offsets, blocks and CRCs must be right past 2^32.
TEST(CheckpointReader, BoxOfMoreThanFourGibibytes)
{
    const TempDir dir;
    constexpr std::int64_t columns = (std::int64_t{9} << 29) / 8 / 3;
    const std::string step = dir / "step_00000001";
    make_directories(step);
    checkpoint::Manifest manifest;
    manifest.uuid = checkpoint::make_uuid();
    manifest.meta = make_meta(1, {"huge", "behind"});
    checkpoint::ShardPlan plan;
    plan.uuid = manifest.uuid;
    plan.writer = manifest.writer = "test";
    plan.step = 1;
    plan.trainer = &manifest.meta.trainer;
    plan.names = {"huge", "behind"};
    plan.boxes = {planned_whole(make_tensor(CheckpointState::model, "huge", Dtype::f64, {3, columns})),
                  planned_whole(make_tensor(CheckpointState::model, "behind", Dtype::f32, {30000}))};
    checkpoint::ShardLayout layout = checkpoint::create_shard(step + "/shard_00000_of_00001.h5", plan);
    ASSERT_GT(layout.rows[1].file_offset, std::uint64_t{1} << 32);
    std::vector<checkpoint::BoxSums> sums(2);
    const std::vector<char> zeros(static_cast<std::size_t>(checkpoint::block_bytes));
    const std::int64_t huge_bytes = 3 * columns * 8;
    for (std::int64_t at = 0; at < huge_bytes; at += checkpoint::block_bytes)
    {
        const std::int64_t bytes = std::min(checkpoint::block_bytes, huge_bytes - at);
        // All blocks but the last are the same.
        checkpoint::BlockSum sum;
        sum.crc = at > 0 && bytes == checkpoint::block_bytes ? sums[0][0].crc : crc32c(zeros.data(), bytes);
        sums[0].push_back(sum);
    }
    {
        DirectFile file(layout.path, File::Mode::read_write);
        WriteQueue queue(2, checkpoint::block_bytes);
        sums[1] = checkpoint::write_box(queue, file, layout.rows[1], plan.boxes[1],
                                        box_content(plan.boxes[1].tensor, plan.boxes[1].box, 1).data());
        queue.drain();
    }
    manifest.files = {checkpoint::finish_shard(layout, sums)};
    manifest.tensors.resize(2);
    manifest.tensors[0].tensor = plan.boxes[0].tensor;
    manifest.tensors[1].tensor = plan.boxes[1].tensor;
    write_file(step + "/manifest.json", checkpoint::manifest_text(manifest));
    write_file(step + "/COMMIT", checkpoint::commit_text(checkpoint::manifest_text(manifest)));

    EXPECT_TRUE(verify_checkpoint(step, VerifyLevel::meta).faults.empty());
    const CheckpointReader reader(step);
    const double mark = 1.5;
    std::vector<double> found(5, mark);
    reader.read(CheckpointState::model, "huge", make_box({2, columns - 5}, {1, 5}), found.data());
    EXPECT_EQ(found, std::vector<double>(5, 0.0));
    std::vector<char> behind(120000);
    reader.read(CheckpointState::model, "behind", make_box({0}, {30000}), behind.data());
    EXPECT_EQ(behind, box_content(plan.boxes[1].tensor, plan.boxes[1].box, 1));
    // The element 2^29 + 7 lies past 4 GiB; a bit flipped there is found by its block.
    File file(layout.path, File::Mode::read_write);
    file.write_at("x", 1, static_cast<std::int64_t>(layout.rows[0].file_offset) + huge_bytes - 3);
    const CheckpointReader damaged(step);
    EXPECT_NE(message_of([&] {
                  damaged.read(CheckpointState::model, "huge", make_box({2, columns - 5}, {1, 5}), found.data());
              }).find("shard_00000_of_00001.h5: model/huge/0: block 288 of 288 is damaged (crc "),
              std::string::npos);
}

}  // namespace
}  // namespace plimsoll
