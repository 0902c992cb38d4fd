// Runs one forward and backward of a HF checkpoint on a given batch and writes loss and gradients, so that Python can
// compare them with transformers.
//
//     parity_probe CONFIG WEIGHTS BATCH OUT fp32|fp64
//
// BATCH holds i64 ids, labels [B, S], u8 mask [B, S] and, with document masks, i64 document_starts; OUT gets one gradient per canonical tensor and f64 "loss_sum".

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstdio>
#include <cstring>

#include "io/hf_names.hpp"
#include "io/safetensors.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/model.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

template<class T>
std::vector<T> read_all(const SafetensorsReader& reader, const std::string& name)
{
    const SafetensorsTensor& entry = reader.at(name);
    std::vector<T> values(static_cast<std::size_t>(entry.bytes) / sizeof(T));
    reader.read(name, values.data());
    return values;
}

void load_weights(const ModelSpec& spec, const std::string& path, ShardedParams& params)
{
    const SafetensorsModel files(path);
    for (const TensorSpec& tensor : canonical_tensors(spec))
    {
        HostTensor host = read_hf_tensor(files, spec, tensor.name);
        const at::Tensor f32 = at::from_blob(host.bytes.data(), host.shape, at::TensorOptions().dtype(at::kFloat));
        params.view(FlatState::params, tensor.name).copy_(f32);
    }
}

int run(const std::string& config, const std::string& weights, const std::string& batch_path, const std::string& out,
        at::ScalarType dtype)
{
    const c10::AutoGradMode no_autograd(false);
    const ModelSpec spec = read_model_spec(config);
    ShardedParams params(spec, ParallelLayout(), MeshCoordinate(), dtype, install_cpu_allocator());
    load_weights(spec, weights, params);

    const SafetensorsReader batch_reader(batch_path);
    TokenBatch batch;
    batch.num = batch_reader.at("ids").shape.at(0);
    batch.seq_len = batch_reader.at("ids").shape.at(1);
    batch.inputs = read_all<std::int64_t>(batch_reader, "ids");
    batch.labels = read_all<std::int64_t>(batch_reader, "labels");
    batch.mask = read_all<std::uint8_t>(batch_reader, "mask");
    for (const std::uint8_t m : batch.mask) { batch.num_valid += m; }
    if (batch_reader.has("document_starts")) { batch.document_starts = read_all<std::int64_t>(batch_reader, "document_starts"); }

    Stream stream;
    const auto tp = make_self_communicator("tp");
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = tp.get();
    ctx.batch = batch.num;
    ctx.seq_len = batch.seq_len;
    ctx.document_starts = batch.document_starts.empty() ? nullptr : &batch.document_starts;
    Model model(spec, params, batch.seq_len, 0);
    TrainForward done = model.forward(ctx, token_tensors(batch), 1.0 / static_cast<double>(batch.num_valid));
    model.backward(ctx, std::move(done.state));

    std::vector<SafetensorsTensor> entries;
    for (const TensorSpec& tensor : canonical_tensors(spec))
    {
        SafetensorsTensor entry;
        entry.name = tensor.name;
        entry.dtype = dtype == at::kDouble ? "F64" : "F32";
        entry.shape = tensor.shape;
        entries.push_back(entry);
    }
    SafetensorsTensor loss;
    loss.name = "loss_sum";
    loss.dtype = "F64";
    loss.shape = {1};
    entries.push_back(loss);
    SafetensorsWriter writer(out, entries, {{"format", "pt"}});
    for (const TensorSpec& tensor : canonical_tensors(spec))
    {
        writer.write(tensor.name, params.view(FlatState::grads, tensor.name).contiguous().data_ptr());
    }
    writer.write("loss_sum", &done.sums.loss);
    writer.finish();
    return 0;
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc != 6)
    {
        std::fprintf(stderr, "usage: parity_probe CONFIG WEIGHTS BATCH OUT fp32|fp64\n");
        return 2;
    }
    try
    {
        return run(argv[1], argv[2], argv[3], argv[4], std::strcmp(argv[5], "fp64") == 0 ? at::kDouble : at::kFloat);
    }
    catch (const std::exception& error)
    {
        std::fprintf(stderr, "parity_probe: %s\n", error.what());
        return 1;
    }
}
