#include "io/reshard.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "base/error.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_plan.hpp"
#include "io/checkpoint_shard.hpp"
#include "io/file.hpp"
#include "support/instrumented.hpp"
#include "support/layout_checkpoint.hpp"
#include "support/layout_table.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

ReshardOptions options_of(const std::string& source, const std::string& out, const ParallelLayout& layout)
{
    ReshardOptions options;
    options.source = source;
    options.out = out;
    options.layout = layout;
    return options;
}

/// Reshards by `num_ranks` threads; returns the new step's path.
std::string reshard(const std::string& source, const std::string& out, const ParallelLayout& layout, std::int64_t num_ranks = 1)
{
    std::string path;
    run_ranks(num_ranks, [&](Communicator& world) {
        const std::string saved = Reshard(options_of(source, out, layout), world).run().saved.path;
        if (world.rank() == 0) { path = saved; }
    });
    return path;
}

template<class Body>
std::string text_and_code_of(Body&& body)
{
    try
    {
        body();
    }
    catch (const Error& error)
    {
        return fmt::format("{} [{}]", error.what(), static_cast<int>(error.exit_code()));
    }
    return "";
}

std::vector<ParallelLayout> small_layouts()
{
    return {degrees(1, 1, 1, 0), degrees(2, 1, 1, 0), degrees(4, 1, 1, 0), degrees(1, 1, 3, 1),
            degrees(2, 3, 2, 1), degrees(1, 2, 3, 3), with_shards(2, degrees(2, 1, 4, 3)), degrees(4, 2, 3, 2)};
}

std::map<std::string, std::uint64_t> digests_of(const std::string& path)
{
    std::map<std::string, std::uint64_t> digests;
    for (const auto& tensor : CheckpointReader(path).info().tensors)
    {
        digests[checkpoint::tensor_path(tensor.tensor.state, tensor.tensor.name)] = tensor.digest;
    }
    return digests;
}

struct ModelCase
{
    const char* name;
    std::string config;
    std::vector<StateType> states;
    std::int64_t max_tp;
};

class ReshardModel : public ::testing::TestWithParam<ModelCase>
{
};

// From every layout to every third; what is expected of a result does not come from its source, so that A to B to A is covered.
TEST_P(ReshardModel, PairsOfLayoutsHoldTheSameTensors)
{
    const ModelCase& model = GetParam();
    const TempDir dir(fast_directory());
    const std::vector<ParallelLayout> layouts = small_layouts();
    for (std::size_t a = 0; a < layouts.size(); ++a)
    {
        if (layouts[a].tp > model.max_tp || layouts[a].pp > 2) { continue; }
        const std::string source = save_in_layout(dir / fmt::format("from{}", a), 6, model.config, layouts[a], model.states);
        const auto digests = digests_of(source);
        for (std::size_t b = a % 3; b < layouts.size(); b += 3)
        {
            if (layouts[b].tp > model.max_tp || layouts[b].pp > 2) { continue; }
            SCOPED_TRACE(layout_text(layouts[a]) + " to " + layout_text(layouts[b]));
            const std::string path = reshard(source, dir / fmt::format("from{}to{}", a, b), layouts[b]);
            ASSERT_EQ(content_fault(path, 6), "");
            ASSERT_EQ(digests_of(path), digests);
        }
    }
}

TEST_P(ReshardModel, ThereAndBackAndRoundIsFullySound)
{
    const ModelCase& model = GetParam();
    const TempDir dir(fast_directory());
    std::string path = save_in_layout(dir / "start", 6, model.config, degrees(1, 1, 1, 0), model.states);
    const auto digests = digests_of(path);
    int number = 0;
    for (const ParallelLayout& layout : {degrees(1, 2, 3, 1), degrees(1, 1, 1, 0), degrees(model.max_tp, 1, 2, 1),
                                         degrees(1, 2, 1, 0), degrees(model.max_tp, 2, 3, 2), degrees(1, 1, 1, 0)})
    {
        path = reshard(path, dir / std::to_string(number++), layout);
        SCOPED_TRACE(layout_text(layout));
        const VerifyReport report = verify_checkpoint(path, VerifyLevel::full);
        ASSERT_TRUE(report.faults.empty()) << report.faults[0];
        ASSERT_EQ(content_fault(path, 6), "");
        ASSERT_EQ(digests_of(path), digests);
        ASSERT_EQ(CheckpointReader(path).meta().layout_note, layout_text(layout));
    }
}

INSTANTIATE_TEST_SUITE_P(All, ReshardModel,
                         ::testing::Values(ModelCase{"Llama", small_llama_config(), adam_states(), 4},
                                           ModelCase{"TiedLlama", small_llama_config(true), adam_states(), 4},
                                           ModelCase{"Gpt2", small_gpt2_config(), adam_states(Dtype::f64), 4},
                                           ModelCase{"OneElement", tiniest_config(), adam_states(), 1},
                                           ModelCase{"Bf16WithMaster", small_llama_config(true), mixed_states(), 4}),
                         [](const auto& param) { return std::string(param.param.name); });

// Each model's rows one after the other, the last one's result being the next one's source.
TEST(Reshard, GoesThroughEveryLayoutOfTheParityMatrix)
{
    const TempDir dir(fast_directory());
    std::map<std::string, std::string> at;
    std::map<std::string, std::map<std::string, std::uint64_t>> digests;
    int number = 0;
    for (const test::LayoutRow& row : test::read_layout_table())
    {
        // Sanitizers look at each kind of it all the same.
        if (number++ % (is_instrumented ? 6 : 1) != 0) { continue; }
        SCOPED_TRACE(row.text);
        std::string& path = at[row.model];
        if (path.empty())
        {
            path = save_in_layout(dir / row.model, 6, test::table_config(row.model), row.layout, adam_states());
            digests[row.model] = digests_of(path);
            continue;
        }
        const std::string source = path;
        path = reshard(source, dir / std::to_string(number), row.layout);
        ASSERT_EQ(content_fault(path, 6), "");
        ASSERT_EQ(digests_of(path), digests[row.model]);
        ASSERT_EQ(CheckpointReader(path).meta().layout_note, layout_text(row.layout));
        remove_tree(source);
    }
}

TEST(Reshard, EverythingButTheLayoutIsCopied)
{
    const TempDir dir(fast_directory());
    const std::string source = save_in_layout(dir / "in", 6, small_llama_config(true), degrees(2, 1, 1, 0), adam_states());
    const std::string path = reshard(source, dir / "out", degrees(1, 2, 2, 1));
    EXPECT_EQ(path, dir / "out/step_00000006");
    EXPECT_EQ(read_text_file(dir / "out/latest"), "step_00000006\n");
    const CheckpointReader before(source), after(path);
    const CheckpointMeta &a = before.meta(), &b = after.meta();
    EXPECT_EQ(a.layout_note, "tp 2");
    EXPECT_EQ(b.layout_note, "dp 2 pp 2 zero 1");
    EXPECT_EQ(a.model_config, b.model_config);
    EXPECT_EQ(a.model_fingerprint, b.model_fingerprint);
    EXPECT_EQ(a.run_ini, b.run_ini);
    EXPECT_EQ(a.precision, b.precision);
    EXPECT_EQ(a.aliases, b.aliases);
    EXPECT_EQ(b.aliases.at("head.weight"), "embed_tokens.weight");
    EXPECT_EQ(a.trainer.consumed_tokens, b.trainer.consumed_tokens);
    EXPECT_EQ(a.trainer.consumed_samples, b.trainer.consumed_samples);
    EXPECT_EQ(a.trainer.seed, b.trainer.seed);
    EXPECT_EQ(a.trainer.plan_hash, b.trainer.plan_hash);
    EXPECT_EQ(a.trainer.data_order, b.trainer.data_order);
    EXPECT_EQ(a.trainer.tokenizer, b.trainer.tokenizer);
    ASSERT_EQ(b.trainer.groups.size(), 2U);
    for (std::size_t k = 0; k < 2; ++k)
    {
        EXPECT_EQ(a.trainer.groups[k].name, b.trainer.groups[k].name);
        EXPECT_EQ(a.trainer.groups[k].step, b.trainer.groups[k].step);
        EXPECT_EQ(a.trainer.groups[k].weight_decay, b.trainer.groups[k].weight_decay);
        EXPECT_EQ(std::set<std::string>(a.trainer.groups[k].tensors.begin(), a.trainer.groups[k].tensors.end()),
                  std::set<std::string>(b.trainer.groups[k].tensors.begin(), b.trainer.groups[k].tensors.end()));
    }
}

// The same files with the same boxes as a run of the target layout writes: nothing tells them apart but the uuid.
TEST(Reshard, TheResultIsCutAsARunOfTheTargetLayoutSaves)
{
    const TempDir dir(fast_directory());
    const std::string config = small_llama_config(true);
    const std::string source = save_in_layout(dir / "in", 6, config, degrees(1, 1, 1, 0), adam_states());
    for (const ParallelLayout& layout : {degrees(2, 2, 1, 0), degrees(2, 1, 3, 1), degrees(1, 1, 3, 0)})
    {
        const std::string native = save_in_layout(dir / ("native " + layout_text(layout)), 6, config, layout, adam_states());
        const std::string path = reshard(source, dir / ("out " + layout_text(layout)), layout);
        const checkpoint::Manifest a = checkpoint::read_manifest(native), b = checkpoint::read_manifest(path);
        ASSERT_EQ(a.files.size(), b.files.size());
        for (std::size_t k = 0; k < a.files.size(); ++k)
        {
            EXPECT_EQ(a.files[k].name, b.files[k].name);
            EXPECT_EQ(a.files[k].bytes, b.files[k].bytes);
            EXPECT_EQ(a.files[k].index_crc, b.files[k].index_crc) << "the same boxes at the same places, with the same sums";
            EXPECT_EQ(a.files[k].blocks_crc, b.files[k].blocks_crc);
        }
    }
}

// What de-duplication keeps is what replica_index() calls copy 0, whoever writes it.
TEST(HeldBoxes, DeduplicationKeepsOneCopyOfWhatReplicaIndexCounts)
{
    for (const std::string& config : {small_llama_config(), small_llama_config(true), small_gpt2_config()})
    {
        const ModelSpec model = parse_model_spec(config, "config.json");
        for (const ParallelLayout& layout : small_layouts())
        {
            SCOPED_TRACE(layout_text(layout));
            std::multiset<std::string> kept, first_copies;
            for (const checkpoint::FilePlan& file : checkpoint::plan_step(held_boxes(model, layout, adam_states()), 0).files)
            {
                for (const CheckpointBox& box : file.boxes)
                {
                    kept.insert(checkpoint::tensor_path(box.tensor.state, box.tensor.name) + " " + box_text(box.box));
                }
            }
            const DeviceMesh mesh(layout);
            for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
            {
                const FlatLayout flat = make_flat_layout(model, layout, mesh.coordinate(rank), 4);
                for (const StateType& type : adam_states())
                {
                    const StateKind kind = type.state == CheckpointState::model ? StateKind::model : StateKind::optimizer;
                    for (const TensorSpec& spec : canonical_tensors(model))
                    {
                        if (flat.find(spec.name) == nullptr ||
                            replica_index(flat, layout, mesh.coordinate(rank), spec.name, kind) != 0)
                        {
                            continue;
                        }
                        for (const OwnedBox& owned : boxes_of(flat, layout, mesh.coordinate(rank), spec.name, kind))
                        {
                            first_copies.insert(checkpoint::tensor_path(type.state, spec.name) + " " + box_text(owned.box));
                        }
                    }
                }
            }
            EXPECT_EQ(kept, first_copies);
        }
    }
}

TEST(Reshard, AnyNumberOfRanksWritesTheSameBytes)
{
    const TempDir dir(fast_directory());
    const std::string source = save_in_layout(dir / "in", 6, small_llama_config(), degrees(2, 1, 2, 1), adam_states());
    const std::string one = reshard(source, dir / "by1", degrees(1, 2, 3, 1), 1);
    for (const std::int64_t num_ranks : {2, 3, 7})
    {
        const std::string many = reshard(source, dir / fmt::format("by{}", num_ranks), degrees(1, 2, 3, 1), num_ranks);
        ASSERT_EQ(list_directory(one), list_directory(many));
        for (const std::string& name : list_directory(one))
        {
            EXPECT_EQ(read_text_file(one + "/" + name), read_text_file(many + "/" + name)) << name << " by " << num_ranks;
        }
    }
}

// Blocks, tails of blocks, columns and rows of tensors of several blocks, in the least memory.
TEST(Reshard, TensorsOfManyBlocksInLittleMemory)
{
    const TempDir dir(fast_directory());
    const std::string config = R"({"model_type": "llama", "vocab_size": 9001, "hidden_size": 1024, "intermediate_size": 16384,
        "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "tie_word_embeddings": true})";
    std::vector<StateType> states = adam_states();
    states.resize(1);
    const std::string source = save_in_layout(dir / "in", 1, config, degrees(4, 1, 1, 0), states);
    for (const std::int64_t megabytes : {136, 512})
    {
        ReshardOptions options = options_of(source, dir / std::to_string(megabytes), degrees(2, 1, 1, 0));
        options.memory_limit = megabytes << 20;
        const auto self = make_self_communicator("self");
        Reshard reshard(options, *self);
        const ReshardSummary summary = reshard.summary();
        EXPECT_LE(summary.memory, options.memory_limit);
        std::int64_t steps = 0;
        ReshardProgress last;
        const ReshardResult result = reshard.run([&](const ReshardProgress& now) {
            EXPECT_GE(now.written, last.written);
            last = now;
            ++steps;
        });
        EXPECT_EQ(last.written, summary.data_bytes);
        EXPECT_EQ(last.to_write, summary.data_bytes);
        EXPECT_EQ(steps, summary.blocks);
        EXPECT_EQ(result.read_bytes, summary.read_bytes) << "the plan says what will be read";
        EXPECT_EQ(result.digests, summary.tensor_states);
        if (megabytes == 512) { EXPECT_EQ(summary.amplification(), 1.0); }
        EXPECT_EQ(content_fault(result.saved.path, 1), "") << megabytes;
        remove_tree(result.saved.path);
    }
}

class ReshardRefusal : public ::testing::Test
{
  protected:
    ReshardRefusal() : dir_(fast_directory())
    {
        source_ = save_in_layout(dir_ / "in", 6, small_llama_config(), degrees(2, 1, 1, 0), adam_states());
    }

    std::string refusal(const ParallelLayout& layout, std::int64_t memory_limit = std::int64_t{512} << 20) const
    {
        ReshardOptions options = options_of(source_, dir_ / "out", layout);
        options.memory_limit = memory_limit;
        const auto self = make_self_communicator("self");
        const std::string message = text_and_code_of([&] { Reshard(options, *self).run(); });
        EXPECT_FALSE(path_exists(dir_ / "out/step_00000006"));
        if (is_directory(dir_ / "out")) { EXPECT_TRUE(list_directory(dir_ / "out").empty()); }
        return message;
    }

    void edit_manifest(const std::string& from, const std::string& to) const
    {
        std::string text = read_text_file(source_ + "/manifest.json");
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << text;
        text.replace(at, from.size(), to);
        write_file(source_ + "/manifest.json", text);
        write_file(source_ + "/COMMIT", checkpoint::commit_text(text));
    }

    TempDir dir_;
    std::string source_;
};

TEST_F(ReshardRefusal, LayoutThatDoesNotFitTheModel)
{
    EXPECT_EQ(refusal(degrees(3, 1, 1, 0)).find("4 attention heads cannot be split over tp 3 (heads are not cut). allowed tp: 1 2 4"), 0U);
    EXPECT_EQ(refusal(degrees(1, 4, 1, 0)), "3 layers cannot fill pp 4 stages (each stage needs a layer). allowed pp: 1 to 3 [2]");
    EXPECT_EQ(refusal(with_shards(2, degrees(1, 1, 3, 1))),
              "dp 3 cannot be cut into groups of dp-shard 2 (it does not divide). allowed dp-shard: 1 3 [2]");
}

TEST_F(ReshardRefusal, TooLittleMemory)
{
    const std::string message = refusal(degrees(1, 1, 1, 0), std::int64_t{64} << 20);
    EXPECT_EQ(message.find("memory limit 64.0 MiB is too small (this checkpoint needs at least 128 MiB per rank). try --memory-limit "), 0U)
        << message;
}

TEST_F(ReshardRefusal, StepThatIsThereAlready)
{
    const auto self = make_self_communicator("self");
    const std::string message = text_and_code_of([&] { Reshard(options_of(source_, dir_ / "in", degrees(1, 1, 1, 0)), *self); });
    EXPECT_EQ(message, fmt::format("step 6 is in '{}' already ('{}' exists). choose another directory [2]", dir_ / "in", source_));
}

TEST_F(ReshardRefusal, NoCheckpoint)
{
    remove_tree(source_ + "/COMMIT");
    EXPECT_EQ(refusal(degrees(1, 1, 1, 0)), source_ + "/COMMIT: missing (not a committed checkpoint) [2]");
}

TEST_F(ReshardRefusal, AnotherModelThanTheTensorsSay)
{
    edit_manifest("\\\"intermediate_size\\\": 12", "\\\"intermediate_size\\\": 16");
    EXPECT_EQ(refusal(degrees(1, 1, 1, 0)),
              "tensor 'layers.0.mlp.gate_proj.weight' has shape [12, 8] in the checkpoint, its model needs [16, 8] [2]");
}

TEST_F(ReshardRefusal, DamagedBlockIsNamedAndNothingIsCommitted)
{
    const checkpoint::ShardContent shard = checkpoint::open_shard(source_, checkpoint::read_manifest(source_), 1);
    {
        File file(shard.path, File::Mode::read_write);
        file.write_at("\x7f", 1, static_cast<std::int64_t>(shard.rows[0].file_offset) + 2);
    }
    const std::string message = refusal(degrees(1, 1, 1, 0));
    EXPECT_EQ(message.find(source_ + "/shard_00001_of_00002.h5: model/"), 0U) << message;
    EXPECT_NE(message.find("block 1 of 1 is damaged (crc "), std::string::npos) << message;
    EXPECT_NE(message.find("[93]"), std::string::npos) << message;
}

TEST_F(ReshardRefusal, DigestThatDiffersIsNamedAndNothingIsCommitted)
{
    const std::string text = read_text_file(source_ + "/manifest.json");
    const std::size_t tensor = text.find("layers.1.mlp.up_proj.weight");
    const std::size_t at = text.find("\"digest\": \"", tensor) + 11;
    edit_manifest(text.substr(at, 16), "0123456789abcdef");
    const std::string message = refusal(degrees(1, 2, 1, 0));
    EXPECT_EQ(message.find("digest of 'model/layers.1.mlp.up_proj.weight' is "), 0U) << message;
    EXPECT_NE(message.find(", the source's is 0123456789abcdef (the source is damaged, nothing was committed)"), std::string::npos);
    EXPECT_NE(message.find("[93]"), std::string::npos) << message;
}

TEST_F(ReshardRefusal, AFailureOfOneRankIsThrownOnAllAndLeavesNothing)
{
    int failures = 0;
    for (std::int64_t limit = 0; limit < 60000; limit += 1999)
    {
        ::setenv("PLIMSOLL_FAULT_ENOSPC_AFTER", std::to_string(limit).c_str(), 1);
        reload_faults();
        std::mutex mutex;
        std::vector<std::string> messages;
        run_ranks(3, [&](Communicator& world) {
            const std::string message =
                text_and_code_of([&] { Reshard(options_of(source_, dir_ / "out", degrees(1, 2, 2, 1)), world).run(); });
            const std::lock_guard<std::mutex> lock(mutex);
            messages.push_back(message);
        });
        ::unsetenv("PLIMSOLL_FAULT_ENOSPC_AFTER");
        reload_faults();
        if (messages[0].empty()) { break; }
        ++failures;
        for (const std::string& message : messages)
        {
            ASSERT_EQ(message.find("rank "), 0U) << message;
            ASSERT_NE(message.find("(no space left on device)"), std::string::npos) << message;
        }
        if (path_exists(dir_ / "out/step_00000006")) { break; }  // only `latest` failed
        ASSERT_TRUE(list_directory(dir_ / "out").empty());
    }
    EXPECT_GT(failures, 3);
}

TEST_F(ReshardRefusal, AStopOfOneRankStopsAll)
{
    std::mutex mutex;
    std::set<std::string> messages;
    run_ranks(2, [&](Communicator& world) {
        const std::string message = text_and_code_of([&] {
            Reshard(options_of(source_, dir_ / "out", degrees(1, 1, 1, 0)), world).run([&](const ReshardProgress& now) {
                if (world.rank() == 1 && now.written > 100) { throw Interrupted("stopped by SIGTERM"); }
            });
        });
        const std::lock_guard<std::mutex> lock(mutex);
        messages.insert(message);
    });
    EXPECT_EQ(messages, (std::set<std::string>{"rank 1: stopped by SIGTERM [75]"}));
    EXPECT_TRUE(list_directory(dir_ / "out").empty());
}

}  // namespace
}  // namespace plimsoll
