#include "support/layout_table.hpp"

#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace plimsoll::test
{

namespace
{

std::string gpt2_with(std::int64_t hidden, std::int64_t layers, std::int64_t heads)
{
    return fmt::format(R"({{"model_type":"gpt2","vocab_size":37,"n_embd":{},"n_layer":{},"n_head":{},
        "n_positions":64,"layer_norm_epsilon":1e-5,"activation_function":"gelu_new"}})", hidden, layers, heads);
}

std::string llama_with(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, bool tied = false)
{
    return fmt::format(R"({{"model_type":"llama","vocab_size":37,"hidden_size":{},"intermediate_size":48,
        "num_hidden_layers":{},"num_attention_heads":{},"num_key_value_heads":{},"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":{}}})", hidden, layers, heads, kv_heads,
        tied);
}

/// Shared KV heads together with head norms and QKV biases: everything whose gradient is a partial sum.
std::string qwen3()
{
    return R"({"model_type":"qwen3","vocab_size":37,"hidden_size":32,"intermediate_size":48,
        "num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"attention_bias":true})";
}

Bf16Claim parse_bf16_claim(const std::string& value)
{
    if (value.empty()) { return Bf16Claim::close; }
    if (value == "bits") { return Bf16Claim::bits; }
    throw std::runtime_error("unknown claim 'bf16=" + value + "'");
}

void set(LayoutRow& row, const std::string& key, const std::string& value)
{
    const auto number = [&] { return static_cast<std::int64_t>(std::stoll(value)); };
    if (key == "dp") { row.layout.dp = number(); }
    else if (key == "tp") { row.layout.tp = number(); }
    else if (key == "pp") { row.layout.pp = number(); }
    else if (key == "zero") { row.layout.zero_stage = static_cast<int>(number()); }
    else if (key == "sequence-parallel") { row.layout.sequence_parallel = true; }
    else if (key == "dp-shard") { row.layout.dp_shard = number(); }
    else if (key == "schedule") { row.layout.schedule = parse_pipeline_kind(value); }
    else if (key == "virtual-stages") { row.layout.virtual_stages = number(); }
    else if (key == "pp-split") { row.layout.split = parse_stage_split(value); }
    else if (key == "axis-order") { row.layout.axis_order = parse_axis_order(value); }
    else if (key == "micro-batches") { row.micro_batches = number(); }
    else if (key == "mpi") { row.mpi = true; }
    else if (key == "bf16") { row.bf16 = parse_bf16_claim(value); }
    else { throw std::runtime_error("unknown key '" + key + "'"); }
}

LayoutRow parse_row(const std::string& line)
{
    LayoutRow row;
    row.layout.bucket_bytes = 0;
    row.layout.resident_bytes = 0;
    row.layout.global_batch = table_batch;
    std::istringstream words(line);
    words >> row.model;
    row.text = row.model;
    std::string word, name = row.model;
    while (words >> word)
    {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        set(row, key, equals == std::string::npos ? "" : word.substr(equals + 1));
        row.text += " " + word;
        if (key != "mpi" && key != "bf16") { name += " " + word; }
    }
    for (const char c : name) { row.test_name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_'; }
    row.layout = row.with_micro_batches(1);
    for (const std::int64_t number : {row.least_micro_batches(), row.micro_batches})
    {
        if (table_batch % (row.layout.dp * number) != 0) { throw std::runtime_error("the batch does not divide"); }
        const ParallelLayout layout = row.with_micro_batches(number);
        for (const std::string& fault : validate(layout, table_model(row.model), layout.world())) { throw std::runtime_error(fault); }
    }
    return row;
}

}  // namespace

std::int64_t LayoutRow::least_micro_batches() const { return layout.schedule == PipelineKind::interleaved ? layout.pp : 1; }

ParallelLayout LayoutRow::with_micro_batches(std::int64_t number) const
{
    ParallelLayout result = layout;
    result.micro_batch = table_batch / (layout.dp * number);
    return result;
}

void PrintTo(const LayoutRow& row, std::ostream* out) { *out << row.text; }

std::vector<LayoutRow> read_layout_table()
{
    const std::string path = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/torch/parity/layouts.txt";
    std::ifstream file(path);
    if (!file) { throw std::runtime_error("cannot open " + path); }
    std::vector<LayoutRow> rows;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number)
    {
        if (line.empty() || line[0] == '#') { continue; }
        try
        {
            rows.push_back(parse_row(line));
        }
        catch (const std::exception& error)
        {
            throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
        }
    }
    return rows;
}

ModelSpec table_model(const std::string& name) { return parse_model_spec(table_config(name), name); }

std::string table_config(const std::string& name)
{
    if (name == "gpt2") { return gpt2_with(32, 8, 8); }
    if (name == "gpt2-6") { return gpt2_with(36, 6, 6); }
    if (name == "llama") { return llama_with(32, 8, 8, 4); }
    if (name == "llama-kv2") { return llama_with(32, 8, 8, 2); }
    if (name == "llama-mha") { return llama_with(32, 8, 8, 8); }
    if (name == "llama-tied") { return llama_with(32, 8, 8, 2, true); }
    if (name == "llama-6") { return llama_with(36, 6, 6, 2); }
    if (name == "qwen3") { return qwen3(); }
    throw std::runtime_error("unknown model '" + name + "'");
}

}  // namespace plimsoll::test
