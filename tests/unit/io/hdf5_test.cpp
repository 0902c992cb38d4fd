#include "io/hdf5.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

void flip_bit(const std::string& path, std::int64_t offset)
{
    File file(path, File::Mode::read_write);
    unsigned char byte = 0;
    file.read_at(&byte, 1, offset);
    byte ^= 0x10;
    file.write_at(&byte, 1, offset);
}

struct Row
{
    std::uint32_t id;
    std::uint8_t kind;
    char name[11];
    std::uint64_t offset[2];
    std::int64_t step;
    double value;
};

H5TableType row_type()
{
    return {sizeof(Row),
            {{"id", H5Column::Kind::u32, offsetof(Row, id), 1},
             {"kind", H5Column::Kind::u8, offsetof(Row, kind), 1},
             {"name", H5Column::Kind::text, offsetof(Row, name), 11},
             {"offset", H5Column::Kind::u64, offsetof(Row, offset), 2},
             {"step", H5Column::Kind::i64, offsetof(Row, step), 1},
             {"value", H5Column::Kind::f64, offsetof(Row, value), 1}}};
}

TEST(H5File, MissingFileIsAnIoErrorWithOneLine)
{
    EXPECT_EQ(message_of([] { (void)H5File::open("/nonexistent/x.h5", H5File::Access::read); }),
              "cannot open '/nonexistent/x.h5' (no such file or directory)");
    EXPECT_EQ(message_of([] { (void)H5File::create("/nonexistent/x.h5"); }),
              "cannot create '/nonexistent/x.h5' (no such file or directory)");
}

TEST(H5File, EmptyAndForeignFilesAreNotHdf5)
{
    const TempDir dir;
    write_file_atomically(dir / "empty.h5", "");
    write_file_atomically(dir / "text.h5", std::string(5000, 'x'));
    EXPECT_EQ(message_of([&] { (void)H5File::open(dir / "empty.h5", H5File::Access::read); }),
              (dir / "empty.h5") + ": not an hdf5 file (no signature)");
    EXPECT_THROW((void)H5File::open(dir / "text.h5", H5File::Access::read), FormatError);
}

TEST(H5File, TruncationIsNamed)
{
    const TempDir dir;
    {
        H5File file = H5File::create(dir / "x.h5");
        file.create_dataset("/a", Dtype::f32, {1000});
        file.close();
    }
    ASSERT_EQ(::truncate((dir / "x.h5").c_str(), file_size(dir / "x.h5") - 1), 0);
    const std::string message = message_of([&] { (void)H5File::open(dir / "x.h5", H5File::Access::read); });
    EXPECT_NE(message.find("x.h5: truncated file: eof = "), std::string::npos) << message;
}

TEST(H5File, FileOfADeadWriterIsRefused)
{
    const TempDir dir;
    const pid_t child = ::fork();
    if (child == 0)
    {
        H5File file = H5File::create(dir / "x.h5");
        file.create_dataset("/a", Dtype::f32, {1000});
        file.flush();
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(message_of([&] { (void)H5File::open(dir / "x.h5", H5File::Access::read); }),
              (dir / "x.h5") + ": was not closed by its writer (interrupted save?)");
}

TEST(H5File, DamagedSuperblockIsRefused)
{
    const TempDir dir;
    {
        H5File file = H5File::create(dir / "x.h5");
        file.close();
    }
    flip_bit(dir / "x.h5", 24);
    const std::string message = message_of([&] { (void)H5File::open(dir / "x.h5", H5File::Access::read); });
    EXPECT_NE(message.find("x.h5"), std::string::npos);
    EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(H5File, LeakedObjectDoesNotKeepTheFileOpen)
{
    const TempDir dir;
    H5File file = H5File::create(dir / "x.h5");
    const H5Dataset dataset = file.create_dataset("/a", Dtype::f32, {4});
    file.close();
    H5File again = H5File::create(dir / "x.h5");
    again.close();
}

// Groups that are made on the way to an object included.
TEST(H5File, SameContentHasTheSameBytesAtAnyTimeOfDay)
{
    const TempDir dir;
    const auto make = [&](const std::string& path) {
        H5File file = H5File::create(path);
        file.create_dataset("/optim/exp_avg/w/0", Dtype::f32, {3}).write(std::vector<float>{1, 2, 3}.data());
        file.create_group("/model/a/b").set_attribute("step", std::int64_t{7});
        file.create_dataset("/model/a/c/0", Dtype::i64, {});
        file.close();
    };
    make(dir / "one");
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 counts seconds
    make(dir / "two");
    EXPECT_EQ(read_text_file(dir / "one"), read_text_file(dir / "two"));
}

TEST(H5Object, AttributesKeepTypeAndValue)
{
    const TempDir dir;
    {
        H5File file = H5File::create(dir / "x.h5");
        H5Group root = file.root();
        root.set_attribute("i", std::int64_t{-5});
        root.set_attribute("u", std::uint64_t{1} << 63);
        root.set_attribute("f", 0.1);
        root.set_attribute("text", "gr\xc3\xbc\xc3\x9f");
        root.set_attribute("empty", "");
        root.set_attribute("list", std::vector<std::uint64_t>{1, 2, 3});
        root.set_attribute("none", std::vector<std::uint64_t>{});
        root.set_attribute("flag", std::uint8_t{0});
        root.set_attribute("flag", std::uint8_t{1});
        file.close();
    }
    const H5File file = H5File::open(dir / "x.h5", H5File::Access::read);
    const H5Group root = file.root();
    EXPECT_EQ(root.attribute_i64("i"), -5);
    EXPECT_EQ(root.attribute_u64("u"), std::uint64_t{1} << 63);
    EXPECT_EQ(root.attribute_f64("f"), 0.1);
    EXPECT_EQ(root.attribute_string("text"), "gr\xc3\xbc\xc3\x9f");
    EXPECT_EQ(root.attribute_string("empty"), "");
    EXPECT_EQ(root.attribute_u64s("list"), (std::vector<std::uint64_t>{1, 2, 3}));
    EXPECT_EQ(root.attribute_u64s("none"), std::vector<std::uint64_t>{});
    EXPECT_EQ(root.attribute_u64("flag"), 1U);
    EXPECT_TRUE(root.has_attribute("i"));
    EXPECT_FALSE(root.has_attribute("j"));
    EXPECT_EQ(message_of([&] { (void)root.attribute_i64("j"); }), (dir / "x.h5") + ": no attribute 'j'");
    EXPECT_EQ(message_of([&] { (void)root.attribute_i64("text"); }), (dir / "x.h5") + ": attribute 'text' is not 1 number");
    EXPECT_EQ(message_of([&] { (void)root.attribute_i64("list"); }), (dir / "x.h5") + ": attribute 'list' is not 1 number");
    EXPECT_THROW((void)root.attribute_string("i"), FormatError);
}

class H5DatasetOfEachType : public ::testing::TestWithParam<Dtype>
{
};

TEST_P(H5DatasetOfEachType, BytesComeBackAndPwriteAtItsOffsetIsSeen)
{
    const TempDir dir;
    const std::int64_t bytes = 6 * dtype_bytes(GetParam());
    std::vector<unsigned char> data(static_cast<std::size_t>(bytes));
    std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
    std::int64_t offset = 0;
    {
        H5File file = H5File::create(dir / "x.h5");
        H5Dataset dataset = file.create_dataset("/group/sub/a", GetParam(), {2, 3});
        EXPECT_EQ(dataset.storage_bytes(), bytes);
        offset = dataset.file_offset();
        ASSERT_GT(offset, 0);
        file.close();
    }
    File(dir / "x.h5", File::Mode::read_write).write_at(data.data(), bytes, offset);
    const H5File file = H5File::open(dir / "x.h5", H5File::Access::read);
    const H5Dataset dataset = file.dataset("/group/sub/a");
    EXPECT_EQ(dataset.dtype(), GetParam());
    EXPECT_EQ(dataset.dims(), (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(dataset.file_offset(), offset);
    std::vector<unsigned char> back(data.size());
    dataset.read(back.data());
    EXPECT_EQ(back, data);
    std::vector<unsigned char> row(data.size() / 2);
    dataset.read_rows(1, 1, row.data());
    EXPECT_EQ(0, std::memcmp(row.data(), data.data() + data.size() / 2, row.size()));
}

INSTANTIATE_TEST_SUITE_P(All, H5DatasetOfEachType,
                         ::testing::Values(Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::f8_e4m3, Dtype::f8_e5m2,
                                           Dtype::i32, Dtype::i64, Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST(H5Dataset, ZeroElementsAndScalars)
{
    const TempDir dir;
    {
        H5File file = H5File::create(dir / "x.h5");
        H5Dataset nothing = file.create_dataset("/nothing", Dtype::f32, {0, 16});
        EXPECT_EQ(nothing.file_offset(), -1);
        nothing.write(nullptr);
        H5Dataset one = file.create_dataset("/one", Dtype::f64, {});
        const double value = 2.5;
        one.write(&value);
        file.close();
    }
    const H5File file = H5File::open(dir / "x.h5", H5File::Access::read);
    EXPECT_EQ(file.dataset("/nothing").dims(), (std::vector<std::uint64_t>{0, 16}));
    EXPECT_EQ(file.dataset("/nothing").num_elements(), 0);
    EXPECT_EQ(file.dataset("/one").num_elements(), 1);
    double value = 0;
    file.dataset("/one").read(&value);
    EXPECT_EQ(value, 2.5);
}

TEST(H5Dataset, LargeOnesAreAlignedAndSmallOnesArePacked)
{
    const TempDir dir;
    H5File file = H5File::create(dir / "x.h5");
    std::int64_t small_end = 0;
    for (int k = 0; k < 20; ++k)
    {
        const H5Dataset small = file.create_dataset(fmt::format("/small/{}", k), Dtype::f32, {10});
        small_end = small.file_offset() + 40;
        const H5Dataset large = file.create_dataset(fmt::format("/large/{}", k), Dtype::u8, {64 * 1024 + k});
        EXPECT_EQ(large.file_offset() % 4096, 0) << k;
    }
    EXPECT_GT(small_end, 0);
    EXPECT_LT(file_size(dir / "x.h5"), 20 * (64 * 1024 + 8192) + 200000);
    EXPECT_EQ(file.group("/large").children().size(), 20U);
    EXPECT_EQ(file.group("/large").children()[11], "11");
}

TEST(H5Dataset, OffsetsPastFourGibibytesWork)
{
    const TempDir dir;
    constexpr std::int64_t large = (std::int64_t{1} << 32) + 12345;
    std::int64_t offset = 0;
    {
        H5File file = H5File::create(dir / "x.h5");
        offset = file.create_dataset("/huge", Dtype::u8, {large}).file_offset();
        file.create_dataset("/behind", Dtype::u8, {large});
        file.close();
    }
    // Nothing was filled: the file is sparse.
    File(dir / "x.h5", File::Mode::read_write).write_at("end", 3, offset + large - 3);
    const H5File file = H5File::open(dir / "x.h5", H5File::Access::read);
    char text[3];
    file.dataset("/huge").read_rows(large - 3, 3, text);
    EXPECT_EQ(std::string(text, 3), "end");
    EXPECT_GE(file.dataset("/behind").file_offset(), large);
}

TEST(H5Dataset, WritesRowsInPieces)
{
    const TempDir dir;
    H5File file = H5File::create(dir / "x.h5");
    H5Dataset dataset = file.create_dataset("/a", Dtype::u16, {5});
    const std::uint16_t data[] = {1, 2, 3, 4, 5};
    dataset.write_rows(3, 2, data + 3);
    dataset.write_rows(0, 3, data);
    dataset.write_rows(5, 0, data);
    std::uint16_t back[5];
    dataset.read(back);
    EXPECT_EQ(0, std::memcmp(back, data, sizeof data));
    EXPECT_THROW(dataset.write_rows(4, 2, data), InternalError);
}

TEST(H5Dataset, MissingOneIsNamed)
{
    const TempDir dir;
    H5File file = H5File::create(dir / "x.h5");
    EXPECT_EQ(message_of([&] { (void)file.dataset("/a/b"); }), (dir / "x.h5") + ": no dataset '/a/b'");
    EXPECT_FALSE(file.exists("/a/b"));
    file.create_dataset("/a/b", Dtype::f32, {1});
    EXPECT_TRUE(file.exists("/a/b"));
    EXPECT_THROW((void)file.group("/c"), FormatError);
    EXPECT_THROW((void)file.create_dataset("/a/b", Dtype::f32, {1}), FormatError);
}

TEST(H5Table, RowsComeBackByColumnName)
{
    const TempDir dir;
    Row row = {};
    row.id = 7;
    row.kind = 3;
    std::strcpy(row.name, "decay");
    row.offset[1] = std::uint64_t{1} << 40;
    row.step = -1;
    row.value = 0.95;
    H5File file = H5File::create(dir / "x.h5");
    file.create_table("/rows", row_type(), 1);
    file.create_table("/none", row_type(), 0);
    file.write_table("/rows", row_type(), &row);
    file.write_table("/none", row_type(), nullptr);
    Row back = {};
    file.read_table("/rows", row_type(), &back);
    EXPECT_EQ(0, std::memcmp(&row, &back, sizeof row));
    file.read_table("/none", row_type(), nullptr);
    H5TableType other = row_type();
    other.columns[0].name = "identity";
    EXPECT_EQ(message_of([&] { file.read_table("/rows", other, &back); }), (dir / "x.h5") + ": /rows: no column 'identity'");
    file.create_dataset("/plain", Dtype::f32, {1});
    EXPECT_EQ(message_of([&] { file.read_table("/plain", row_type(), &back); }), (dir / "x.h5") + ": /plain: not a table");
}

TEST(H5Strings, ListsOfStringsComeBack)
{
    const TempDir dir;
    H5File file = H5File::create(dir / "x.h5");
    const std::vector<std::string> names = {"", "layers.0.attn.q_proj.weight", "gr\xc3\xbc\xc3\x9f"};
    file.create_strings("/names", names);
    file.create_strings("/none", {});
    EXPECT_EQ(file.read_strings("/names"), names);
    EXPECT_TRUE(file.read_strings("/none").empty());
    file.create_dataset("/plain", Dtype::f32, {1});
    EXPECT_THROW((void)file.read_strings("/plain"), FormatError);
}

TEST(H5File, ThreadsMayUseItAtOnce)
{
    const TempDir dir;
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k)
    {
        threads.emplace_back([&dir, k] {
            const std::string path = dir / fmt::format("{}.h5", k);
            for (int round = 0; round < 10; ++round)
            {
                H5File file = H5File::create(path);
                file.create_dataset("/a", Dtype::f32, {100});
                EXPECT_FALSE(message_of([&] { (void)file.dataset("/b"); }).empty());
                file.close();
                const H5File back = H5File::open(path, H5File::Access::read);
                EXPECT_EQ(back.dataset("/a").num_elements(), 100);
            }
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
}

}  // namespace
}  // namespace plimsoll
