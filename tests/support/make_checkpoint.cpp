// Makes small checkpoints and safetensors files with known content for the command line tests, and measures rates.
//
//     make-checkpoint steps ROOT PARTS STEP...   a few tensors of each state, the largest cut into PARTS boxes
//     make-checkpoint layout ROOT STEP MODEL TP PP DP ZERO [mixed]
//                                                a model (llama, tied, gpt2, tiniest or a config.json) as a run of that layout
//                                                saves it; mixed: bf16 with master weights
//     make-checkpoint types ROOT                 step 1: element k of tensor "f32", "bf16", ... of shape [3, 5] is k - 4
//     make-checkpoint safetensors FILE           the same values in F32, F64, BF16, F16, I32, I64
//     make-checkpoint read FILE NAME             prints dtype, shape and the raw bytes of a tensor in hex
//     make-checkpoint rate ROOT GIB              saves and verifies that much data beside raw direct writes and reads

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/error.hpp"
#include "io/direct_file.hpp"
#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "support/layout_checkpoint.hpp"
#include "support/synthetic_checkpoint.hpp"

namespace
{

using namespace plimsoll;
using namespace plimsoll::testing;

template<class Word>
void append(std::vector<char>& bytes, Word word)
{
    const char* begin = reinterpret_cast<const char*>(&word);
    bytes.insert(bytes.end(), begin, begin + sizeof word);
}

std::uint16_t upper_half(float value)
{
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    return static_cast<std::uint16_t>(bits >> 16);
}

// Bits of a small integer in half precision.
std::uint16_t half_bits(int value)
{
    if (value == 0) { return 0; }
    const int magnitude = value < 0 ? -value : value;
    int exponent = 0;
    while ((2 << exponent) <= magnitude) { ++exponent; }
    const int mantissa = (magnitude << (10 - exponent)) & 1023;
    return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | mantissa);
}

std::vector<char> counting(Dtype dtype)
{
    std::vector<char> bytes;
    for (int k = 0; k < 15; ++k)
    {
        const int value = k - 4;
        switch (dtype)
        {
            case Dtype::f32: append(bytes, static_cast<float>(value)); break;
            case Dtype::f64: append(bytes, static_cast<double>(value)); break;
            case Dtype::bf16: append(bytes, upper_half(static_cast<float>(value))); break;
            case Dtype::f16: append(bytes, half_bits(value)); break;
            case Dtype::i32: append(bytes, value); break;
            case Dtype::i64: append(bytes, static_cast<std::int64_t>(value)); break;
            default: throw InternalError("no counting values of this type");
        }
    }
    return bytes;
}

constexpr Dtype counted[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64};

void make_types(const std::string& root)
{
    std::vector<CheckpointBox> boxes;
    for (const Dtype dtype : counted)
    {
        boxes.push_back(planned_whole(make_tensor(CheckpointState::model, std::string(dtype_name(dtype)), dtype, {3, 5})));
    }
    CheckpointWriter writer(root, make_meta(1, tensor_names(boxes)), boxes);
    for (const CheckpointBox& box : boxes)
    {
        writer.write(box.tensor.state, box.tensor.name, box.box, counting(box.tensor.dtype).data());
    }
    std::puts(writer.commit().path.c_str());
}

void make_safetensors(const std::string& path)
{
    std::vector<SafetensorsTensor> tensors;
    for (const Dtype dtype : counted)
    {
        SafetensorsTensor tensor;
        tensor.name = std::string(dtype_name(dtype));
        tensor.dtype = safetensors_name(dtype);
        tensor.shape = {3, 5};
        tensors.push_back(tensor);
    }
    SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
    for (const Dtype dtype : counted) { writer.write(std::string(dtype_name(dtype)), counting(dtype).data()); }
    writer.finish();
}

void read_safetensors(const std::string& path, const std::string& name)
{
    const SafetensorsModel model(path);
    const SafetensorsTensor& tensor = model.at(name);
    std::vector<unsigned char> bytes(static_cast<std::size_t>(tensor.bytes));
    model.read(name, bytes.data());
    std::string hex;
    for (const unsigned char byte : bytes) { hex += fmt::format("{:02x}", byte); }
    std::puts(fmt::format("{} [{}] {}", tensor.dtype, fmt::join(tensor.shape, ","), hex).c_str());
}

double seconds_of(const std::function<void()>& body)
{
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void raw_write(const std::string& path, std::int64_t bytes)
{
    constexpr std::int64_t piece = std::int64_t{16} << 20;
    File(path, File::Mode::create).reserve(bytes);
    DirectFile file(path, File::Mode::read_write);
    AlignedBuffer buffer(piece);
    std::memset(buffer.data(), 0x5A, static_cast<std::size_t>(piece));
    for (std::int64_t at = 0; at < bytes; at += piece) { file.write_at(buffer.data(), piece, at); }
    file.buffered().sync();
}

void raw_read(const std::string& path, std::int64_t bytes)
{
    constexpr std::int64_t piece = std::int64_t{16} << 20;
    const DirectFile file(path, File::Mode::read);
    AlignedBuffer buffer(piece);
    for (std::int64_t at = 0; at < bytes; at += piece) { file.read_at(buffer.data(), piece, at); }
}

void measure(const std::string& root, std::int64_t gib)
{
    // Tensors of a 124 M model's kind: mostly 9.4 MB, one of 154 MB, some small.
    const std::int64_t bytes = gib << 30;
    std::vector<CheckpointBox> boxes;
    std::int64_t planned_total = 0;
    for (int k = 0; planned_total < bytes; ++k)
    {
        const std::vector<std::int64_t> shape = k % 16 == 0 ? std::vector<std::int64_t>{50257, 768} : std::vector<std::int64_t>{3072, 768};
        boxes.push_back(planned_whole(make_tensor(CheckpointState::model, fmt::format("w{}", k), Dtype::f32, shape)));
        boxes.push_back(planned_whole(make_tensor(CheckpointState::model, fmt::format("b{}", k), Dtype::f32, {768})));
        planned_total += 4 * (shape[0] * shape[1] + 768);
    }
    std::vector<float> data(50257 * 768);
    for (std::size_t k = 0; k < data.size(); ++k) { data[k] = static_cast<float>(k % 1000) * 0.001F; }
    make_directories(root);
    const auto rate = [planned_total](double seconds) { return static_cast<double>(planned_total) / seconds / 1e9; };
    for (int round = 0; round < 3; ++round)
    {
        const std::string raw = root + "/raw";
        const double write_seconds = seconds_of([&] { raw_write(raw, planned_total >> 24 << 24); });
        const double read_seconds = seconds_of([&] { raw_read(raw, planned_total >> 24 << 24); });
        remove_tree(raw);
        std::string path;
        const double save_seconds = seconds_of([&] {
            CheckpointWriter writer(root, make_meta(1, {}), boxes);
            for (const CheckpointBox& box : boxes) { writer.write(box.tensor.state, box.tensor.name, box.box, data.data()); }
            path = writer.commit().path;
        });
        const double load_seconds = seconds_of([&] {
            const CheckpointReader reader(path);
            for (const CheckpointBox& box : boxes) { reader.read(box.tensor.state, box.tensor.name, box.box, data.data()); }
        });
        VerifyReport report;
        const double verify_seconds = seconds_of([&] { report = verify_checkpoint(path, VerifyLevel::full); });
        VALIDATE(report.faults.empty(), FormatError, "{}", report.faults[0]);
        remove_tree(path);
        std::puts(fmt::format("{:.2f} GB   raw write {:.2f} save {:.2f} ({:.0f} %)   raw read {:.2f} load {:.2f} ({:.0f} %) "
                              "verify {:.2f} ({:.0f} %) GB/s",
                              static_cast<double>(planned_total) / 1e9, rate(write_seconds), rate(save_seconds),
                              100 * write_seconds / save_seconds, rate(read_seconds), rate(load_seconds),
                              100 * read_seconds / load_seconds, rate(verify_seconds), 100 * read_seconds / verify_seconds)
                      .c_str());
    }
}

std::string config_of(const std::string& model)
{
    if (model == "llama") { return small_llama_config(); }
    if (model == "tied") { return small_llama_config(true); }
    if (model == "gpt2") { return small_gpt2_config(); }
    if (model == "tiniest") { return tiniest_config(); }
    return read_text_file(model);
}

void make_layout(const std::vector<std::string>& arguments)
{
    const auto number = [&](std::size_t k) { return std::stoll(arguments[k]); };
    const ParallelLayout layout = degrees(number(4), number(5), number(6), static_cast<int>(number(7)));
    const bool is_mixed = arguments.size() > 8 && arguments[8] == "mixed";
    std::puts(save_in_layout(arguments[1], number(2), config_of(arguments[3]), layout, is_mixed ? mixed_states() : adam_states())
                  .c_str());
}

int run(const std::vector<std::string>& arguments)
{
    const std::string command = arguments.empty() ? "" : arguments[0];
    if (command == "steps" && arguments.size() > 3)
    {
        for (std::size_t k = 3; k < arguments.size(); ++k)
        {
            std::puts(save_synthetic(arguments[1], std::stoll(arguments[k]), small_boxes(std::stoll(arguments[2]))).path.c_str());
        }
    }
    else if (command == "layout" && arguments.size() >= 8) { make_layout(arguments); }
    else if (command == "types" && arguments.size() == 2) { make_types(arguments[1]); }
    else if (command == "safetensors" && arguments.size() == 2) { make_safetensors(arguments[1]); }
    else if (command == "read" && arguments.size() == 3) { read_safetensors(arguments[1], arguments[2]); }
    else if (command == "rate" && arguments.size() == 3) { measure(arguments[1], std::stoll(arguments[2])); }
    else { return 2; }
    return 0;
}

}  // namespace

int main(int argc, char** argv)
{
    try
    {
        return run(std::vector<std::string>(argv + 1, argv + argc));
    }
    catch (const std::exception& error)
    {
        std::fprintf(stderr, "make-checkpoint: %s\n", error.what());
        return 1;
    }
}
