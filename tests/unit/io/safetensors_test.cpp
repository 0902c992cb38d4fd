#include "io/safetensors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "io/hf_names.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

std::string with_length(const std::string& header, std::uint64_t length)
{
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return text + header;
}

SafetensorsTensor describe(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape)
{
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    return tensor;
}

class SafetensorsHeader : public ::testing::Test
{
  protected:
    // What the reader says of a file with this header and `data` bytes behind it.
    std::string fault(const std::string& header, std::size_t data = 8)
    {
        write_file(dir_ / "x.safetensors", with_length(header, header.size()) + std::string(data, 'd'));
        return read_fault();
    }

    std::string read_fault()
    {
        const std::string path = dir_ / "x.safetensors";
        const std::string message = message_of([&] { SafetensorsReader reader(path); });
        EXPECT_TRUE(message.empty() || message.find(path + ": ") == 0) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        return message.empty() ? "" : message.substr(path.size() + 2);
    }

    TempDir dir_;
};

TEST_F(SafetensorsHeader, TooSmallTooLargeAndBeyondTheFile)
{
    write_file(dir_ / "x.safetensors", "");
    EXPECT_EQ(read_fault(), "header is too small (0 bytes, at least 8 are needed)");
    write_file(dir_ / "x.safetensors", "1234567");
    EXPECT_EQ(read_fault(), "header is too small (7 bytes, at least 8 are needed)");
    write_file(dir_ / "x.safetensors", with_length("{}", 100000001));
    EXPECT_EQ(read_fault(), "header is too large (100000001 bytes, at most 100000000 are allowed)");
    write_file(dir_ / "x.safetensors", with_length("{}", ~std::uint64_t{0}));
    EXPECT_EQ(read_fault(), "header is too large (18446744073709551615 bytes, at most 100000000 are allowed)");
    write_file(dir_ / "x.safetensors", with_length("{}", 3));
    EXPECT_EQ(read_fault(), "header goes beyond the file (11 bytes, the file has 10)");
}

TEST_F(SafetensorsHeader, NotJson)
{
    for (const char* header : {"", "{", "x", "{\"a\"}", "{} {}", "{\"a\": \xff}", "{\"\xc3\x28\": 1}"})
    {
        EXPECT_EQ(fault(header, 0).find("header is not valid json ("), 0U) << header << ": " << fault(header, 0);
    }
    EXPECT_EQ(fault("[]", 0), "header is not a json object");
    EXPECT_EQ(fault(std::string(100000, '['), 0).find("header is not valid json ("), 0U);
}

TEST_F(SafetensorsHeader, DuplicateKeys)
{
    const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    EXPECT_EQ(fault("{\"a\":" + entry + ",\"a\":" + entry + "}"), "header has the key 'a' twice");
    EXPECT_EQ(fault(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})"), "header has the key 'dtype' twice");
    EXPECT_EQ(fault(R"({"__metadata__":{"x":"1","x":"2"}})", 0), "header has the key 'x' twice");
    // The same key in two objects is fine.
    EXPECT_EQ(fault(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"), "");
}

TEST_F(SafetensorsHeader, HolesAndOverlaps)
{
    const auto two = [](int a0, int a1, int b0, int b1) {
        return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                           R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                           a1 - a0, a0, a1, b1 - b0, b0, b1);
    };
    EXPECT_EQ(fault(two(0, 4, 4, 8)), "");
    EXPECT_EQ(fault(two(4, 8, 0, 4)), "");
    EXPECT_EQ(fault(two(0, 4, 5, 8)), "tensor 'b' starts at byte 5 of the data, the one before it ends at 4 (hole)");
    EXPECT_EQ(fault(two(0, 5, 4, 8)), "tensor 'b' starts at byte 4 of the data, the one before it ends at 5 (overlap)");
    EXPECT_EQ(fault(two(1, 4, 4, 8)), "tensor 'a' starts at byte 1 of the data, the one before it ends at 0 (hole)");
}

TEST_F(SafetensorsHeader, SizesThatDoNotFit)
{
    const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
        return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
    };
    EXPECT_EQ(fault(one("F32", "[3]", "[0,8]")), "tensor 'a' has 8 bytes, its shape needs 12");
    EXPECT_EQ(fault(one("F31", "[2]", "[0,8]")), "tensor 'a' has unknown dtype 'F31'");
    EXPECT_EQ(fault(one("F4", "[3]", "[0,8]")), "tensor 'a' ends inside a byte (12 bits)");
    EXPECT_EQ(fault(one("F4", "[16]", "[0,8]")), "");
    EXPECT_EQ(fault(one("F32", "[9223372036854775807,9]", "[0,8]")), "tensor 'a' has an impossible shape");
    EXPECT_EQ(fault(one("F32", "[18446744073709551615]", "[0,8]")), "tensor 'a' has an impossible shape");
    EXPECT_EQ(fault(one("F32", "[-2]", "[0,8]")), "tensor 'a' has an impossible shape");
    EXPECT_EQ(fault(one("F32", "[2.0]", "[0,8]")), "tensor 'a' has an impossible shape");
    EXPECT_EQ(fault(one("F32", "[2]", "[8,0]")), "tensor 'a' ends before it begins (8 to 0)");
    EXPECT_EQ(fault(one("F32", "[2]", "[0]")), "tensor 'a' has no pair of data_offsets");
    EXPECT_EQ(fault(one("F32", "[2]", "[-8,0]")), "tensor 'a' has no pair of data_offsets");
    EXPECT_EQ(fault(one("F32", "[2]", "[9223372036854775800,9223372036854775807]")), "tensor 'a' has an impossible offset");
    EXPECT_EQ(fault(one("F32", "[2]", "[0,8]"), 7), "truncated file (69 bytes, the header asks for 70)");
    EXPECT_EQ(fault(one("F32", "[2]", "[0,8]"), 10).find("2 trailing bytes ("), 0U);
    EXPECT_EQ(fault(R"({"a":{"dtype":"F32","shape":[2]}})").find("tensor 'a' is not described ("), 0U);
    EXPECT_EQ(fault(R"({"a":5})").find("tensor 'a' is not described ("), 0U);
    EXPECT_EQ(fault(R"({"__metadata__":{"x":1}})", 0), "__metadata__ is not a map of strings (see 'x')");
    EXPECT_EQ(fault(R"({"__metadata__":[]})", 0), "__metadata__ is not a map of strings");
}

// Some writers pad to a page boundary, on either side.
TEST_F(SafetensorsHeader, WhitespaceOnBothEndsAndNoTensorsAtAll)
{
    EXPECT_EQ(fault(" \t\r\n {} \n  ", 0), "");
    EXPECT_EQ(fault("{}", 0), "");
    EXPECT_EQ(fault("{}", 1), "1 trailing bytes (11 bytes, the header asks for 10)");
}

TEST(Safetensors, WrittenTensorsComeBack)
{
    const TempDir dir;
    const std::string path = dir / "x.safetensors";
    std::vector<float> floats(12);
    std::iota(floats.begin(), floats.end(), 0.5F);
    const double scalar = 2.25;
    const std::vector<std::uint8_t> bytes = {1, 2, 3};
    {
        SafetensorsWriter writer(path,
                                 {describe("bytes", "U8", {3}), describe("empty", "BF16", {0, 7}), describe("w", "F32", {3, 4}),
                                  describe("scalar", "F64", {})},
                                 {{"format", "pt"}});
        writer.write("bytes", bytes.data());
        writer.write("scalar", &scalar);
        writer.write("w", floats.data());
        writer.write("empty", nullptr);
        EXPECT_FALSE(path_exists(path));
        writer.finish();
    }
    const SafetensorsReader reader(path);
    EXPECT_EQ(reader.metadata().at("format"), "pt");
    ASSERT_EQ(reader.tensors().size(), 4U);
    EXPECT_EQ(reader.tensors()[0].name, "scalar");
    EXPECT_EQ(reader.tensors()[0].offset % 8, 0);
    EXPECT_EQ(reader.at("w").shape, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(safetensors_dtype(reader.at("w").dtype), Dtype::f32);
    std::vector<float> back(12);
    reader.read("w", back.data());
    EXPECT_EQ(back, floats);
    reader.read_bytes("w", 4, 8, back.data());
    EXPECT_EQ(back[0], floats[1]);
    double value = 0;
    reader.read("scalar", &value);
    EXPECT_EQ(value, scalar);
    EXPECT_EQ(reader.at("empty").bytes, 0);
    EXPECT_EQ(message_of([&] { reader.read("v", &value); }), path + ": no tensor 'v'");
    EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"x.safetensors"});
}

TEST(Safetensors, UnfinishedWriterLeavesNothing)
{
    const TempDir dir;
    {
        SafetensorsWriter writer(dir / "x", {describe("a", "F32", {1})}, {});
        EXPECT_THROW(writer.finish(), InternalError);
    }
    EXPECT_TRUE(list_directory(dir.path()).empty());
    EXPECT_THROW(SafetensorsWriter(dir / "x", {describe("a", "F32", {1}), describe("a", "F32", {1})}, {}), InternalError);
}

TEST(Safetensors, UnsupportedTypesAreNamed)
{
    EXPECT_EQ(message_of([] { (void)safetensors_dtype("BOOL"); }), "dtype BOOL is not supported");
    EXPECT_EQ(std::string(safetensors_name(Dtype::bf16)), "BF16");
}

void write_one(const std::string& path, const std::string& name, const std::vector<std::int64_t>& shape, std::vector<float> data)
{
    SafetensorsWriter writer(path, {describe(name, "F32", shape)}, {});
    writer.write(name, data.data());
    writer.finish();
}

TEST(SafetensorsModel, IndexAndFilesMustAgreeBothWays)
{
    const TempDir dir;
    const std::string index = dir / "model.safetensors.index.json";
    write_one(dir / "1.safetensors", "a", {1}, {1});
    write_one(dir / "2.safetensors", "b", {1}, {2});
    write_file(index, R"({"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
    const SafetensorsModel model(dir.path());
    EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b"}));
    float value = 0;
    model.read("b", &value);
    EXPECT_EQ(value, 2);
    EXPECT_EQ(message_of([&] { model.read("c", &value); }), dir.path() + ": no tensor 'c'");

    write_file(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }), index + ": tensor 'c' is not in '2.safetensors'");
    write_file(index, R"({"weight_map":{"a":"2.safetensors","b":"2.safetensors"}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }), index + ": tensor 'a' is not in '2.safetensors'");
    write_file(index, R"({"weight_map":{"b":"2.safetensors","x":"1.safetensors"}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }), (dir / "1.safetensors") + ": tensor 'a' is not in the index");
    write_file(index, R"({"weight_map":{"a":"../1.safetensors"}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }), index + ": weight_map of 'a' is not a file name");
    write_file(index, R"({"weights":{}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }), index + ": no weight_map");
    write_file(index, R"({"weight_map":{"a":"3.safetensors"}})");
    EXPECT_EQ(message_of([&] { SafetensorsModel broken(dir.path()); }),
              "cannot open '" + (dir / "3.safetensors") + "' (no such file or directory)");
}

TEST(SafetensorsModel, OneFileOrItsDirectory)
{
    const TempDir dir;
    EXPECT_THROW(SafetensorsModel(dir.path()), IoError);
    write_one(dir / "model.safetensors", "a", {1}, {1});
    EXPECT_TRUE(SafetensorsModel(dir.path()).has("a"));
    EXPECT_TRUE(SafetensorsModel(dir / "model.safetensors").has("a"));
}

ModelSpec spec(const char* family)
{
    const std::string gpt2 = R"({"model_type":"gpt2","vocab_size":5,"n_embd":2,"n_layer":2,"n_head":1,"n_positions":4,"n_inner":3,
        "activation_function":"gelu_new","layer_norm_epsilon":1e-5,"tie_word_embeddings":true,"resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0})";
    const std::string llama = fmt::format(
        R"({{"model_type":"{}","vocab_size":5,"hidden_size":4,"intermediate_size":6,"num_hidden_layers":2,"num_attention_heads":2,
        "num_key_value_heads":1,"head_dim":2,"max_position_embeddings":8,"rms_norm_eps":1e-5,"hidden_act":"silu",
        "rope_theta":10000.0,"tie_word_embeddings":false}})", family);
    return parse_model_spec(std::string(family) == "gpt2" ? gpt2 : llama, "test");
}

TEST(HfNames, EveryCanonicalTensorHasAPlaceAndNoTwoShareOne)
{
    for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3"})
    {
        const ModelSpec model = spec(family);
        std::map<std::string, std::string> places;
        for (const TensorSpec& tensor : canonical_tensors(model))
        {
            const HfTensorRef ref = hf_tensor_ref(model, tensor.name);
            EXPECT_TRUE(places.emplace(fmt::format("{} {}", ref.name, ref.begin), tensor.name).second) << tensor.name;
        }
    }
}

// Names as transformers writes them (modeling_gpt2.py, modeling_llama.py, modeling_qwen3.py).
TEST(HfNames, KnownNames)
{
    const auto name = [](const char* family, const char* canonical) { return hf_tensor_ref(spec(family), canonical).name; };
    EXPECT_EQ(name("llama", "embed_tokens.weight"), "model.embed_tokens.weight");
    EXPECT_EQ(name("llama", "layers.1.input_norm.weight"), "model.layers.1.input_layernorm.weight");
    EXPECT_EQ(name("llama", "layers.1.mlp_norm.weight"), "model.layers.1.post_attention_layernorm.weight");
    EXPECT_EQ(name("llama", "layers.0.attn.o_proj.weight"), "model.layers.0.self_attn.o_proj.weight");
    EXPECT_EQ(name("llama", "head.weight"), "lm_head.weight");
    EXPECT_EQ(name("qwen2", "layers.0.attn.q_proj.bias"), "model.layers.0.self_attn.q_proj.bias");
    EXPECT_EQ(name("qwen3", "layers.0.attn.q_norm.weight"), "model.layers.0.self_attn.q_norm.weight");
    EXPECT_EQ(name("gpt2", "embed_positions.weight"), "wpe.weight");
    EXPECT_EQ(name("gpt2", "layers.1.mlp.up_proj.weight"), "h.1.mlp.c_fc.weight");
    EXPECT_EQ(name("gpt2", "layers.1.mlp_norm.bias"), "h.1.ln_2.bias");
    EXPECT_EQ(name("gpt2", "final_norm.bias"), "ln_f.bias");
    EXPECT_THROW((void)hf_tensor_ref(spec("llama"), "layers.0.attn.r_proj.weight"), InternalError);
    EXPECT_THROW((void)hf_tensor_ref(spec("gpt2"), "layers.0.mlp.gate_proj.weight"), InternalError);
    ModelSpec other = spec("llama");
    other.family = "gemma2";
    EXPECT_EQ(message_of([&] { (void)hf_tensor_ref(other, "head.weight"); }),
              "models of family 'gemma2' cannot be read from safetensors in this version");
}

std::vector<float> floats_of(const HostTensor& tensor)
{
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
}

TEST(HfNames, Gpt2IsSlicedAndTransposed)
{
    const TempDir dir;
    const ModelSpec model = spec("gpt2");
    // Conv1D [in = 2, out = 6]: entry = 10 * in + out; columns 0-1 are q, 2-3 k, 4-5 v.
    const std::string path = dir / "model.safetensors";
    SafetensorsWriter writer(path,
                             {describe("transformer.h.0.attn.c_attn.weight", "F32", {2, 6}),
                              describe("transformer.h.0.attn.c_attn.bias", "F32", {6}),
                              describe("transformer.h.0.mlp.c_fc.weight", "F32", {2, 3}),
                              describe("wte.weight", "F32", {5, 3})},
                             {});
    const std::vector<float> fused = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
    const std::vector<float> bias = {0, 1, 2, 3, 4, 5};
    const std::vector<float> up = {0, 1, 2, 10, 11, 12};
    const std::vector<float> table(15);
    writer.write("transformer.h.0.attn.c_attn.weight", fused.data());
    writer.write("transformer.h.0.attn.c_attn.bias", bias.data());
    writer.write("transformer.h.0.mlp.c_fc.weight", up.data());
    writer.write("wte.weight", table.data());
    writer.finish();
    const SafetensorsModel files(path);
    const HostTensor key = read_hf_tensor(files, model, "layers.0.attn.k_proj.weight");
    EXPECT_EQ(key.shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(floats_of(key), (std::vector<float>{2, 12, 3, 13}));
    EXPECT_EQ(floats_of(read_hf_tensor(files, model, "layers.0.attn.v_proj.bias")), (std::vector<float>{4, 5}));
    const HostTensor wide = read_hf_tensor(files, model, "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(wide.shape, (std::vector<std::int64_t>{3, 2}));
    EXPECT_EQ(floats_of(wide), (std::vector<float>{0, 10, 1, 11, 2, 12}));
    EXPECT_EQ(message_of([&] { (void)read_hf_tensor(files, model, "embed_tokens.weight"); }),
              "tensor 'wte.weight' has shape [5, 3], the model needs [5, 2]");
    EXPECT_EQ(message_of([&] { (void)read_hf_tensor(files, model, "final_norm.weight"); }), path + ": no tensor 'ln_f.weight'");
}

}  // namespace
}  // namespace plimsoll
