// What is wrong with a checkpoint is said in one line that names the file, at each level that can see it.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_shard.hpp"
#include "io/file.hpp"
#include "io/hdf5.hpp"
#include "support/expect_error.hpp"
#include "support/synthetic_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

const std::string shard_name = "shard_00000_of_00001.h5";

class CheckpointFault : public ::testing::Test
{
  protected:
    CheckpointFault() : dir_(fast_directory())
    {
        step_ = save_synthetic(dir_.path(), 20, small_boxes()).path;
        shard_ = step_ + "/" + shard_name;
    }

    // The faults at `level`; each must be one line that names a path below the step.
    std::vector<std::string> faults(VerifyLevel level) const
    {
        std::vector<std::string> list = verify_checkpoint(step_, level).faults;
        for (const std::string& fault : list)
        {
            EXPECT_EQ(fault.find('\n'), std::string::npos) << fault;
            EXPECT_NE(fault.find(step_), std::string::npos) << fault;
        }
        return list;
    }

    // The only fault, seen from `level` on and not below it; the reader refuses the step too, unless only `full` sees it.
    void expect_fault(VerifyLevel level, const std::string& text) const
    {
        for (const VerifyLevel now : {VerifyLevel::size, VerifyLevel::meta, VerifyLevel::full})
        {
            const std::vector<std::string> list = faults(now);
            if (now < level) { EXPECT_TRUE(list.empty()) << list[0]; }
            else
            {
                ASSERT_EQ(list.size(), 1U) << (list.empty() ? "" : list[1]);
                EXPECT_NE(list[0].find(text), std::string::npos) << list[0];
            }
        }
        if (level == VerifyLevel::full) { return; }
        const std::string refusal = message_of([&] { CheckpointReader reader(step_); });
        EXPECT_NE(refusal.find(text), std::string::npos) << refusal;
    }

    void flip(std::int64_t offset) const
    {
        File file(shard_, File::Mode::read_write);
        unsigned char byte = 0;
        file.read_at(&byte, 1, offset);
        byte ^= 0x04;
        file.write_at(&byte, 1, offset);
    }

    void edit_manifest(const std::string& from, const std::string& to, bool commit_too = true) const
    {
        std::string text = read_text_file(step_ + "/manifest.json");
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << text;
        text.replace(at, from.size(), to);
        write_file(step_ + "/manifest.json", text);
        if (commit_too) { write_file(step_ + "/COMMIT", checkpoint::commit_text(text)); }
    }

    TempDir dir_;
    std::string step_, shard_;
};

TEST_F(CheckpointFault, SoundOneHasNone)
{
    const VerifyReport report = verify_checkpoint(step_, VerifyLevel::full);
    EXPECT_TRUE(report.faults.empty());
    EXPECT_EQ(report.files, 1);
    EXPECT_EQ(report.tensors, 12);
    EXPECT_EQ(report.boxes, 15);
    EXPECT_EQ(report.bytes, file_size(shard_));
}

TEST_F(CheckpointFault, MissingDirectory)
{
    const VerifyReport report = verify_checkpoint(step_ + "1", VerifyLevel::size);
    ASSERT_EQ(report.faults.size(), 1U);
    EXPECT_EQ(report.faults[0], step_ + "1/COMMIT: missing (not a committed checkpoint)");
}

TEST_F(CheckpointFault, MissingShard)
{
    remove_tree(shard_);
    expect_fault(VerifyLevel::size, shard_name + ": missing");
}

TEST_F(CheckpointFault, MissingCommit)
{
    remove_tree(step_ + "/COMMIT");
    expect_fault(VerifyLevel::size, "/COMMIT: missing (not a committed checkpoint)");
}

TEST_F(CheckpointFault, MissingManifest)
{
    remove_tree(step_ + "/manifest.json");
    expect_fault(VerifyLevel::size, "/manifest.json: missing");
}

TEST_F(CheckpointFault, WrongCommit)
{
    write_file(step_ + "/COMMIT", "done\n");
    expect_fault(VerifyLevel::size, "/COMMIT: is not a sha256 of manifest.json (damaged)");
}

TEST_F(CheckpointFault, EditedManifest)
{
    edit_manifest("\"step\": 20", "\"step\": 21", false);
    expect_fault(VerifyLevel::size, "/manifest.json: does not match COMMIT (edited or damaged)");
}

TEST_F(CheckpointFault, TruncatedShard)
{
    std::filesystem::resize_file(shard_, static_cast<std::uintmax_t>(file_size(shard_) - 1));
    expect_fault(VerifyLevel::size, shard_name + ": truncated (");
}

TEST_F(CheckpointFault, TrailingBytes)
{
    File(shard_, File::Mode::read_write).write_at("0123456789", 10, file_size(shard_));
    expect_fault(VerifyLevel::size, shard_name + ": 10 trailing bytes (");
}

TEST_F(CheckpointFault, OtherMajorVersion)
{
    std::string text = read_text_file(step_ + "/manifest.json");
    const std::size_t at = text.find("\"format_version\"");
    text[text.find('1', at)] = '2';
    write_file(step_ + "/manifest.json", text);
    write_file(step_ + "/COMMIT", checkpoint::commit_text(text));
    expect_fault(VerifyLevel::size,
                 "/manifest.json: format version 2.0 is not readable (this version reads 1.x). use a plimsoll of that time");
}

TEST_F(CheckpointFault, NewerMinorVersionAndUnknownOptionalFeatureAreRead)
{
    std::string text = read_text_file(step_ + "/manifest.json");
    const std::size_t at = text.find("\"format_version\"");
    text[text.find('0', at)] = '7';
    write_file(step_ + "/manifest.json", text);
    edit_manifest("\"element_digest\"", "\"element_digest\", \"lace\"");
    EXPECT_TRUE(faults(VerifyLevel::full).empty());
    EXPECT_EQ(content_fault(step_, 20), "");
}

TEST_F(CheckpointFault, UnknownRequiredFeature)
{
    edit_manifest("\"required_features\": []", "\"required_features\": [\"compression\"]");
    expect_fault(VerifyLevel::size,
                 "/manifest.json: needs feature 'compression', which this version does not know. use a newer plimsoll");
}

TEST_F(CheckpointFault, ManifestThatIsNoManifest)
{
    for (const char* text : {"", "{", "[]", "{}", "{\"format\": 5}", "{\"format\": \"other\"}", "\xff\xfe"})
    {
        write_file(step_ + "/manifest.json", text);
        write_file(step_ + "/COMMIT", checkpoint::commit_text(text));
        expect_fault(VerifyLevel::size, "/manifest.json: ");
    }
}

TEST_F(CheckpointFault, ManifestThatLeavesTheDirectory)
{
    edit_manifest("\"" + shard_name + "\"", "\"../" + shard_name + "\"");
    expect_fault(VerifyLevel::size, "/manifest.json: file name '../shard_00000_of_00001.h5' leaves the directory");
}

TEST_F(CheckpointFault, ImpossibleShape)
{
    edit_manifest("\"shape\": [", "\"shape\": [9223372036854775807, ");
    expect_fault(VerifyLevel::size, "/manifest.json: tensor 'embed_tokens.weight' has an impossible shape");
}

TEST_F(CheckpointFault, FilesOfTwoCheckpointsMixed)
{
    const std::string other = save_synthetic(dir_ / "other", 20, small_boxes()).path;
    std::filesystem::copy_file(other + "/" + shard_name, shard_, std::filesystem::copy_options::overwrite_existing);
    expect_fault(VerifyLevel::meta, shard_name + ": belongs to another checkpoint (uuid ");
}

TEST_F(CheckpointFault, IncompleteFile)
{
    {
        H5File file = H5File::open(shard_, H5File::Access::read_write);
        file.root().set_attribute("complete", std::uint8_t{0});
        file.close();
    }
    expect_fault(VerifyLevel::meta, shard_name + ": is not complete (interrupted save?)");
}

TEST_F(CheckpointFault, ForeignFileInPlaceOfAShard)
{
    write_file(shard_, std::string(static_cast<std::size_t>(file_size(shard_)), 'x'));
    expect_fault(VerifyLevel::meta, shard_name + ": not an hdf5 file (no signature)");
}

TEST_F(CheckpointFault, BitFlipInData)
{
    const checkpoint::ShardContent content = checkpoint::open_shard(step_, checkpoint::read_manifest(step_), 0);
    flip(static_cast<std::int64_t>(content.rows[1].file_offset) + 17);
    expect_fault(VerifyLevel::full, shard_name + ": model/embed_tokens.weight/1: block 1 of 1 is damaged (crc ");
    const CheckpointReader reader(step_);
    std::vector<char> data(12 * 5 * 4);
    const std::string refusal = message_of([&] {
        reader.read(CheckpointState::model, "embed_tokens.weight", make_box({0, 0}, {12, 5}), data.data());
    });
    EXPECT_NE(refusal.find("model/embed_tokens.weight/1: block 1 of 1 is damaged"), std::string::npos) << refusal;
    // The other box of the tensor is sound and may be read.
    reader.read(CheckpointState::model, "embed_tokens.weight", make_box({0, 0}, {6, 5}), data.data());
}

TEST_F(CheckpointFault, BitFlipInIndexAndCrcTable)
{
    const std::int64_t index = H5File::open(shard_, H5File::Access::read).dataset("/index").file_offset();
    const std::int64_t blocks = H5File::open(shard_, H5File::Access::read).dataset("/crc").file_offset();
    flip(index + 200);
    expect_fault(VerifyLevel::meta, shard_name + ": /index is damaged (crc differs from the manifest)");
    flip(index + 200);
    flip(blocks + 5);
    expect_fault(VerifyLevel::meta, shard_name + ": /crc is damaged (crc differs from the manifest)");
    flip(blocks + 5);
    EXPECT_TRUE(faults(VerifyLevel::full).empty());
}

// One bit in any byte of the file, whatever region it is in: found, in one line, without a crash.
TEST_F(CheckpointFault, BitFlipAnywhereIsFound)
{
    const std::int64_t bytes = file_size(shard_);
    for (std::int64_t offset = 0; offset < bytes; offset += offset < 4096 ? 5 : 127)
    {
        flip(offset);
        ASSERT_FALSE(faults(VerifyLevel::full).empty()) << "byte " << offset << " of " << bytes;
        flip(offset);
    }
    EXPECT_TRUE(faults(VerifyLevel::full).empty());
}

TEST_F(CheckpointFault, TruncationAnywhereIsFoundWithoutTheManifest)
{
    // The file layer alone, as if the manifest had been written for the short file.
    const std::int64_t bytes = file_size(shard_);
    const checkpoint::Manifest manifest = checkpoint::read_manifest(step_);
    for (std::int64_t keep = bytes - 1; keep >= 0; keep -= 997)
    {
        std::filesystem::resize_file(shard_, static_cast<std::uintmax_t>(keep));
        const std::string message = message_of([&] { checkpoint::open_shard(step_, manifest, 0); });
        ASSERT_NE(message.find(shard_name), std::string::npos) << keep;
        ASSERT_EQ(message.find('\n'), std::string::npos) << message;
    }
}

// A step written without the writer's checks: boxes with gaps, overlaps, or of tensors that the manifest does not know.
std::string write_unchecked(const std::string& root, const std::vector<CheckpointBox>& boxes,
                            const std::vector<CheckpointTensor>& tensors)
{
    const std::string step = root + "/step_00000020";
    make_directories(step);
    checkpoint::Manifest manifest;
    manifest.uuid = checkpoint::make_uuid();
    manifest.writer = "test";
    manifest.meta = make_meta(20, {});
    checkpoint::ShardPlan plan;
    plan.uuid = manifest.uuid;
    plan.writer = "test";
    plan.step = 20;
    plan.trainer = &manifest.meta.trainer;
    plan.names = tensor_names(boxes);
    plan.boxes = boxes;
    checkpoint::ShardLayout layout = checkpoint::create_shard(step + "/" + shard_name, plan);
    std::vector<checkpoint::BoxSums> sums;
    {
        DirectFile file(layout.path, File::Mode::read_write);
        WriteQueue queue(2, checkpoint::block_bytes);
        for (std::size_t k = 0; k < boxes.size(); ++k)
        {
            const std::vector<char> data = box_content(boxes[k].tensor, boxes[k].box, 20);
            sums.push_back(checkpoint::write_box(queue, file, layout.rows[k], boxes[k], data.data()));
        }
        queue.drain();
    }
    manifest.files = {checkpoint::finish_shard(layout, sums)};
    for (const CheckpointTensor& tensor : tensors)
    {
        checkpoint::TensorRecord record;
        record.tensor = tensor;
        for (std::size_t k = 0; k < boxes.size(); ++k)
        {
            if (boxes[k].tensor.name == tensor.name) { record.digest += checkpoint::box_digest(sums[k]); }
        }
        manifest.tensors.push_back(record);
    }
    const std::string text = checkpoint::manifest_text(manifest);
    write_file(step + "/manifest.json", text);
    write_file(step + "/COMMIT", checkpoint::commit_text(text));
    return step;
}

TEST_F(CheckpointFault, GapAndOverlapAndStranger)
{
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, {8, 2});
    const CheckpointTensor other = make_tensor(CheckpointState::model, "v", Dtype::f32, {3});
    step_ = write_unchecked(dir_ / "gap", {planned(tensor, make_box({0, 0}, {5, 2}))}, {tensor});
    expect_fault(VerifyLevel::meta, "model/w: 6 of 16 elements are in no box");
    step_ = write_unchecked(dir_ / "overlap",
                            {planned(tensor, make_box({0, 0}, {5, 2})), planned(tensor, make_box({4, 0}, {4, 2}))}, {tensor});
    expect_fault(VerifyLevel::meta, "model/w: boxes [0 5) x [0 2) and [4 8) x [0 2) overlap");
    step_ = write_unchecked(dir_ / "stranger", {planned_whole(tensor), planned_whole(other)}, {tensor});
    expect_fault(VerifyLevel::meta, "is not in the manifest");
    step_ = write_unchecked(dir_ / "missing", {planned_whole(tensor)}, {tensor, other});
    expect_fault(VerifyLevel::meta, "model/v: 3 of 3 elements are in no box");
}

TEST_F(CheckpointFault, DigestThatDiffersFromTheData)
{
    const std::string text = read_text_file(step_ + "/manifest.json");
    const std::size_t at = text.find("\"digest\": \"") + 11;
    edit_manifest(text.substr(at, 16), "0123456789abcdef");
    expect_fault(VerifyLevel::full, ": model/embed_tokens.weight: digest is ");
}

}  // namespace
}  // namespace plimsoll
