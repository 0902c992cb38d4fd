#pragma once
/// What every Communicator must do, as bodies that each rank of a job runs: over one process, threads, the delayed decorator
/// and MPI. Results are held against a serial oracle bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/bf16.hpp"
#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"
#include "support/buffer_view.hpp"

namespace plimsoll::testing
{

struct ConformanceCase
{
    const char* name;
    std::int64_t least_ranks;
    void (*body)(Communicator& world);
};

/// Different for every rank and index; magnitudes spread over 2^40, so that any other order of summation shows.
template<class T>
T value_of(std::int64_t rank, std::int64_t index)
{
    auto hash = static_cast<std::uint64_t>(rank * 1000003 + index + 1) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
    hash *= 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 32;
    if constexpr (std::is_floating_point_v<T>)
    {
        const double fraction = static_cast<double>(hash >> 11) / 9007199254740992.0 - 0.5;
        return static_cast<T>(fraction * static_cast<double>(std::uint64_t(1) << (hash % 40)));
    }
    else { return static_cast<T>(hash); }
}

template<class T>
std::vector<T> values_of(std::int64_t rank, std::int64_t count)
{
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) { values[static_cast<std::size_t>(i)] = value_of<T>(rank, i); }
    return values;
}

/// Sums from the left in the order of `ranks`, rounded to T after each.
template<class T>
std::vector<T> sum_of(const std::vector<std::int64_t>& ranks, std::int64_t count)
{
    std::vector<T> sums = values_of<T>(ranks.front(), count);
    for (std::size_t r = 1; r < ranks.size(); ++r)
    {
        for (std::int64_t i = 0; i < count; ++i)
        {
            T& sum = sums[static_cast<std::size_t>(i)];
            const T value = value_of<T>(ranks[r], i);
            if constexpr (std::is_floating_point_v<T>) { sum = sum + value; }
            else
            {
                using Unsigned = std::make_unsigned_t<T>;
                sum = static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(value)));
            }
        }
    }
    return sums;
}

inline std::vector<std::int64_t> all_ranks(const Communicator& world)
{
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

/// The same bits; names the first that differ.
template<class T>
void expect_bits(const std::vector<T>& found, const std::vector<T>& wanted, const std::string& what)
{
    ASSERT_EQ(found.size(), wanted.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i)
    {
        if (std::memcmp(&found[i], &wanted[i], sizeof(T)) != 0)
        {
            FAIL() << what << ": element " << i << " of " << found.size() << " is " << +found[i] << ", not " << +wanted[i];
        }
    }
}

inline std::string label(const Communicator& comm, const char* what, std::int64_t count)
{
    return std::string(what) + " of " + std::to_string(count) + " on rank " + std::to_string(comm.rank()) + " of " +
           std::to_string(comm.size());
}

template<class T>
void check_all_reduce(Communicator& comm, const std::vector<std::int64_t>& world_ranks, std::int64_t count)
{
    Stream stream;
    std::vector<T> data = values_of<T>(world_ranks[static_cast<std::size_t>(comm.rank())], count);
    comm.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
    expect_bits(data, sum_of<T>(world_ranks, count), label(comm, "all_reduce", count));
}

inline void all_reduce_is_the_serial_sum(Communicator& world)
{
    const std::vector<std::int64_t> ranks = all_ranks(world);
    for (const std::int64_t count : {0, 1, 2, 3, 63, 64, 65, 127, 1000, 2048, 2049, 4099, 65536, 100003})
    {
        check_all_reduce<float>(world, ranks, count);
    }
    for (const std::int64_t count : {0, 1, 65, 5000, 70001})
    {
        check_all_reduce<double>(world, ranks, count);
        check_all_reduce<std::int32_t>(world, ranks, count);
        check_all_reduce<std::int64_t>(world, ranks, count);
        check_all_reduce<std::uint8_t>(world, ranks, count);
    }
}

inline void a_large_all_reduce_is_the_serial_sum(Communicator& world)
{
    check_all_reduce<float>(world, all_ranks(world), 1500007);
    check_all_reduce<double>(world, all_ranks(world), 300001);
}

/// Values that bf16 holds, their sums in fp32 in rank order, rounded behind the last rank.
inline std::vector<Bf16> bf16_values(std::int64_t rank, std::int64_t count)
{
    std::vector<Bf16> values;
    for (const float value : values_of<float>(rank, count)) { values.push_back(Bf16(value)); }
    return values;
}

inline std::vector<Bf16> bf16_sums(std::int64_t num_ranks, std::int64_t count)
{
    std::vector<float> sums(static_cast<std::size_t>(count), 0.0F);
    for (std::int64_t rank = 0; rank < num_ranks; ++rank)
    {
        const std::vector<Bf16> values = bf16_values(rank, count);
        for (std::size_t i = 0; i < sums.size(); ++i) { sums[i] = rank == 0 ? float(values[i]) : sums[i] + float(values[i]); }
    }
    std::vector<Bf16> rounded;
    for (const float sum : sums) { rounded.push_back(Bf16(sum)); }
    return rounded;
}

/// Each partial sum rounded to bf16 would lose what is small beside it.
inline void a_bf16_sum_is_taken_in_fp32_and_rounded_once(Communicator& world)
{
    Stream stream;
    for (const std::int64_t count : {0, 1, 65, 3000, 100003})
    {
        std::vector<Bf16> data = bf16_values(world.rank(), count);
        world.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
        expect_bits(data, bf16_sums(world.size(), count), label(world, "bf16 all_reduce", count));
        std::vector<Bf16> input = bf16_values(world.rank(), count * world.size());
        std::vector<Bf16> output(static_cast<std::size_t>(count));
        world.reduce_scatter(view_of(input), view_of(output), stream).wait(stream);
        const std::vector<Bf16> sums = bf16_sums(world.size(), count * world.size());
        const auto mine = sums.begin() + static_cast<std::ptrdiff_t>(world.rank() * count);
        expect_bits(output, std::vector<Bf16>(mine, mine + static_cast<std::ptrdiff_t>(count)),
                    label(world, "bf16 reduce_scatter", count));
    }
}

template<class T>
void check_max(Communicator& world, std::int64_t count)
{
    Stream stream;
    std::vector<T> data = values_of<T>(world.rank(), count);
    std::vector<T> wanted = values_of<T>(0, count);
    for (std::int64_t rank = 1; rank < world.size(); ++rank)
    {
        for (std::int64_t i = 0; i < count; ++i)
        {
            wanted[static_cast<std::size_t>(i)] = std::max(wanted[static_cast<std::size_t>(i)], value_of<T>(rank, i));
        }
    }
    world.all_reduce(view_of(data), ReduceOp::max, stream).synchronize();
    expect_bits(data, wanted, label(world, "max", count));
}

inline void all_reduce_finds_the_maximum(Communicator& world)
{
    for (const std::int64_t count : {1, 64, 1001, 40000})
    {
        check_max<float>(world, count);
        check_max<double>(world, count);
        check_max<std::int64_t>(world, count);
        check_max<std::uint8_t>(world, count);
    }
}

inline void a_maximum_with_nan_is_nan(Communicator& world)
{
    Stream stream;
    for (std::int64_t who = 0; who < world.size(); ++who)
    {
        std::vector<float> data{static_cast<float>(world.rank()), 1};
        if (world.rank() == who) { data[0] = std::numeric_limits<float>::quiet_NaN(); }
        world.all_reduce(view_of(data), ReduceOp::max, stream).synchronize();
        EXPECT_TRUE(data[0] != data[0]) << "NaN of rank " << who << " seen by rank " << world.rank();
        EXPECT_EQ(data[1], 1);
    }
}

template<class T>
void check_reduce_scatter(Communicator& world, std::int64_t count, bool in_place)
{
    Stream stream;
    const std::int64_t size = world.size();
    std::vector<T> input = values_of<T>(world.rank(), count * size);
    const std::vector<T> before = input;
    std::vector<T> output(static_cast<std::size_t>(count));
    const BufferView part = view_of(input).slice(world.rank() * count, count);
    world.reduce_scatter(view_of(input), in_place ? part : view_of(output), stream).wait(stream);
    const std::vector<T> sums = sum_of<T>(all_ranks(world), count * size);
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(world.rank() * count);
    const std::vector<T> wanted(first, first + static_cast<std::ptrdiff_t>(count));
    if (in_place)
    {
        const auto* mine = static_cast<const T*>(part.data);
        output.assign(mine, mine + count);
    }
    else { expect_bits(input, before, label(world, "input of reduce_scatter", count)); }
    expect_bits(output, wanted, label(world, in_place ? "reduce_scatter in place" : "reduce_scatter", count));
}

inline void reduce_scatter_is_the_serial_sum(Communicator& world)
{
    for (const std::int64_t count : {0, 1, 2, 17, 64, 1000, 3001, 70000})
    {
        for (const bool in_place : {false, true})
        {
            check_reduce_scatter<float>(world, count, in_place);
            check_reduce_scatter<double>(world, count, in_place);
        }
    }
    check_reduce_scatter<std::int64_t>(world, 1001, false);
    check_reduce_scatter<float>(world, 300000, true);
}

template<class T>
void check_all_gather(Communicator& world, std::int64_t count, bool in_place)
{
    Stream stream;
    std::vector<T> input = values_of<T>(world.rank(), count);
    std::vector<T> output(static_cast<std::size_t>(count * world.size()));
    const BufferView part = view_of(output).slice(world.rank() * count, count);
    if (in_place && count > 0) { std::memcpy(part.data, input.data(), static_cast<std::size_t>(part.bytes())); }
    world.all_gather(in_place ? part : view_of(input), view_of(output), stream).wait(stream);
    std::vector<T> wanted;
    for (std::int64_t rank = 0; rank < world.size(); ++rank)
    {
        const std::vector<T> theirs = values_of<T>(rank, count);
        wanted.insert(wanted.end(), theirs.begin(), theirs.end());
    }
    expect_bits(output, wanted, label(world, in_place ? "all_gather in place" : "all_gather", count));
    expect_bits(input, values_of<T>(world.rank(), count), label(world, "input of all_gather", count));
}

inline void all_gather_keeps_every_byte(Communicator& world)
{
    for (const std::int64_t count : {0, 1, 3, 100, 5001, 90000})
    {
        for (const bool in_place : {false, true})
        {
            check_all_gather<float>(world, count, in_place);
            check_all_gather<double>(world, count, in_place);
            check_all_gather<std::uint16_t>(world, count, in_place);
            check_all_gather<std::uint8_t>(world, count, in_place);
        }
    }
}

template<class T>
void check_broadcast(Communicator& world, std::int64_t count, std::int64_t root)
{
    Stream stream;
    std::vector<T> data = values_of<T>(world.rank(), count);
    world.broadcast(view_of(data), root, stream).wait(stream);
    expect_bits(data, values_of<T>(root, count), label(world, "broadcast", count));
}

inline void broadcast_comes_from_every_root(Communicator& world)
{
    for (std::int64_t root = 0; root < world.size(); ++root)
    {
        for (const std::int64_t count : {0, 1, 77, 200001}) { check_broadcast<float>(world, count, root); }
        check_broadcast<std::int64_t>(world, 33, root);
        check_broadcast<std::uint8_t>(world, 12345, root);
        check_broadcast<std::uint16_t>(world, 501, root);
    }
}

/// ZeRO and plain data parallelism must see the same bits.
inline void reduce_scatter_and_all_gather_make_an_all_reduce(Communicator& world)
{
    Stream stream;
    for (const std::int64_t part : {5, 640, 4097, 50000})
    {
        const std::int64_t count = part * world.size();
        std::vector<float> whole = values_of<float>(world.rank(), count);
        std::vector<float> sharded = whole;
        world.all_reduce(view_of(whole), ReduceOp::sum, stream).wait(stream);
        const BufferView mine = view_of(sharded).slice(world.rank() * part, part);
        world.reduce_scatter(view_of(sharded), mine, stream).wait(stream);
        world.all_gather(mine, view_of(sharded), stream).wait(stream);
        expect_bits(sharded, whole, label(world, "reduce_scatter and all_gather", count));
    }
}

/// Buckets of any size, cut anywhere, give the bits of one piece.
inline void a_sum_in_pieces_is_the_sum_in_one(Communicator& world)
{
    Stream stream;
    const std::int64_t count = 90001;
    std::vector<float> whole = values_of<float>(world.rank(), count);
    std::vector<float> pieces = whole;
    world.all_reduce(view_of(whole), ReduceOp::sum, stream).wait(stream);
    std::vector<Work> works;
    for (std::int64_t first = 0, length = 1; first < count; first += length, length = length * 3 + 1)
    {
        length = std::min(length, count - first);
        works.push_back(world.all_reduce(view_of(pieces).slice(first, length), ReduceOp::sum, stream));
    }
    for (Work& work : works) { work.wait(stream); }
    expect_bits(pieces, whole, label(world, "all_reduce in pieces", count));
}

/// Many at once, waited for from the last to the first.
inline void operations_under_way_end_in_any_order(Communicator& world)
{
    Stream stream;
    constexpr std::int64_t num = 24;
    std::vector<std::vector<float>> data;
    std::vector<std::vector<double>> gathered;
    std::vector<std::vector<double>> parts;
    std::vector<Work> works;
    for (std::int64_t i = 0; i < num; ++i)
    {
        data.push_back(values_of<float>(world.rank(), 1 + i * i * 37));
        parts.push_back(values_of<double>(world.rank(), i));
        gathered.emplace_back(static_cast<std::size_t>(i * world.size()));
    }
    for (std::size_t i = 0; i < num; ++i)
    {
        works.push_back(world.all_reduce(view_of(data[i]), ReduceOp::sum, stream));
        works.push_back(world.all_gather(view_of(parts[i]), view_of(gathered[i]), stream));
        world.progress();
    }
    while (!works.empty())
    {
        works.back().wait(stream);
        works.pop_back();
    }
    for (std::int64_t i = 0; i < num; ++i)
    {
        const auto at = static_cast<std::size_t>(i);
        expect_bits(data[at], sum_of<float>(all_ranks(world), 1 + i * i * 37), label(world, "all_reduce under way", i));
        for (std::int64_t rank = 0; rank < world.size(); ++rank)
        {
            for (std::int64_t k = 0; k < i; ++k)
            {
                ASSERT_EQ(gathered[at][static_cast<std::size_t>(rank * i + k)], value_of<double>(rank, k));
            }
        }
    }
}

/// Large ones of every kind at once, more than any buffer between ranks holds, waited for from the last to the first.
inline void large_operations_of_every_kind_are_under_way_together(Communicator& world)
{
    Stream stream;
    const std::int64_t size = world.size(), part = 500003;
    const std::vector<std::int64_t> ranks = all_ranks(world);
    for (int round = 0; round < 2; ++round)
    {
        std::vector<float> reduced = values_of<float>(world.rank(), part);
        std::vector<double> scattered = values_of<double>(world.rank(), part * size);
        std::vector<double> scattered_part(static_cast<std::size_t>(part));
        std::vector<std::int64_t> piece = values_of<std::int64_t>(world.rank(), part);
        std::vector<std::int64_t> gathered(static_cast<std::size_t>(part * size));
        std::vector<float> spread = values_of<float>(world.rank(), part);
        std::vector<Work> works;
        works.push_back(world.all_reduce(view_of(reduced), ReduceOp::sum, stream));
        works.push_back(world.reduce_scatter(view_of(scattered), view_of(scattered_part), stream));
        world.progress();
        works.push_back(world.all_gather(view_of(piece), view_of(gathered), stream));
        works.push_back(world.broadcast(view_of(spread), size - 1, stream));
        while (!works.empty())
        {
            works.back().wait(stream);
            works.pop_back();
        }
        expect_bits(reduced, sum_of<float>(ranks, part), label(world, "all_reduce beside others", part));
        const std::vector<double> sums = sum_of<double>(ranks, part * size);
        const auto mine = sums.begin() + static_cast<std::ptrdiff_t>(world.rank() * part);
        expect_bits(scattered_part, std::vector<double>(mine, mine + static_cast<std::ptrdiff_t>(part)),
                    label(world, "reduce_scatter beside others", part));
        for (std::int64_t rank = 0; rank < size; ++rank)
        {
            const auto first = gathered.begin() + static_cast<std::ptrdiff_t>(rank * part);
            expect_bits(std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(part)),
                        values_of<std::int64_t>(rank, part), label(world, "all_gather beside others", part));
        }
        expect_bits(spread, values_of<float>(size - 1, part), label(world, "broadcast beside others", part));
    }
}

/// Messages of both neighbours at once, of all lengths; between two members they arrive in the order sent.
inline void messages_arrive_in_the_order_sent(Communicator& world)
{
    Stream stream;
    const std::int64_t next = (world.rank() + 1) % world.size();
    const std::int64_t previous = (world.rank() + world.size() - 1) % world.size();
    const std::vector<std::int64_t> counts{3, 0, 100000, 1, 2500, 3};
    std::vector<std::vector<float>> sent, received;
    std::vector<Work> works;
    for (std::size_t i = 0; i < counts.size(); ++i)
    {
        sent.push_back(values_of<float>(world.rank() * 10 + static_cast<std::int64_t>(i), counts[i]));
        received.emplace_back(static_cast<std::size_t>(counts[i]));
    }
    for (std::size_t i = 0; i < counts.size(); ++i)
    {
        works.push_back(world.send(view_of(sent[i]), next, stream));
        works.push_back(world.recv(view_of(received[i]), previous, stream));
    }
    for (Work& work : works) { work.wait(stream); }
    for (std::size_t i = 0; i < counts.size(); ++i)
    {
        expect_bits(received[i], values_of<float>(previous * 10 + static_cast<std::int64_t>(i), counts[i]),
                    label(world, "message", counts[i]));
    }
}

/// As stages of a pipeline do: each waits for its receive before it sends, and for its sends last.
inline void a_chain_of_messages_passes_through_all(Communicator& world)
{
    Stream stream;
    constexpr std::int64_t count = 3000;
    constexpr int num_messages = 5;
    const bool first = world.rank() == 0, last = world.rank() + 1 == world.size();
    std::vector<std::vector<double>> buffers(num_messages, std::vector<double>(count));
    std::vector<Work> sends;
    for (int i = 0; i < num_messages; ++i)
    {
        std::vector<double>& buffer = buffers[static_cast<std::size_t>(i)];
        if (first) { buffer = values_of<double>(i, count); }
        else { world.recv(view_of(buffer), world.rank() - 1, stream).wait(stream); }
        for (double& value : buffer) { value += 1; }
        if (!last) { sends.push_back(world.send(view_of(buffer), world.rank() + 1, stream)); }
    }
    for (Work& work : sends) { work.wait(stream); }
    for (int i = 0; i < num_messages; ++i)
    {
        std::vector<double> wanted = values_of<double>(i, count);
        for (double& value : wanted)
        {
            for (std::int64_t rank = 0; rank <= world.rank(); ++rank) { value += 1; }
        }
        expect_bits(buffers[static_cast<std::size_t>(i)], wanted, label(world, "chain", i));
    }
}

/// Groups sum in their own order of ranks, whatever that of the world is.
inline void a_subgroup_sums_in_its_own_order(Communicator& world)
{
    std::vector<std::int64_t> reversed = all_ranks(world);
    std::reverse(reversed.begin(), reversed.end());
    const auto group = world.subgroup("reversed", reversed);
    EXPECT_EQ(group->name(), "reversed");
    EXPECT_EQ(group->rank(), world.size() - 1 - world.rank());
    EXPECT_EQ(group->size(), world.size());
    check_all_reduce<float>(*group, reversed, 4000);
    check_all_reduce<float>(*group, reversed, 100);
    const auto alone = world.subgroup("alone", {world.rank()});
    EXPECT_EQ(alone->size(), 1);
    check_all_reduce<float>(*alone, {world.rank()}, 100);
}

/// Rows and columns of a mesh, with operations under way on both, in an order of waiting that differs between ranks.
inline void several_groups_work_at_once(Communicator& world)
{
    Stream stream;
    const std::int64_t columns = 2, rows = world.size() / 2;
    if (world.rank() >= rows * columns)
    {
        world.barrier();
        return;
    }
    std::vector<std::int64_t> row, column;
    for (std::int64_t c = 0; c < columns; ++c) { row.push_back(world.rank() / columns * columns + c); }
    for (std::int64_t r = 0; r < rows; ++r) { column.push_back(r * columns + world.rank() % columns); }
    const auto row_group = world.subgroup("row", row);
    const auto column_group = world.subgroup("column", column);
    for (int round = 0; round < 10; ++round)
    {
        std::vector<float> in_row = values_of<float>(world.rank(), 3000 + round);
        std::vector<float> in_column = values_of<float>(world.rank(), 20000 + round);
        Work first = row_group->all_reduce(view_of(in_row), ReduceOp::sum, stream);
        Work second = column_group->all_reduce(view_of(in_column), ReduceOp::sum, stream);
        const bool swapped = world.rank() % 2 == 1;
        (swapped ? second : first).wait(stream);
        (swapped ? first : second).wait(stream);
        expect_bits(in_row, sum_of<float>(row, 3000 + round), label(*row_group, "row", round));
        expect_bits(in_column, sum_of<float>(column, 20000 + round), label(*column_group, "column", round));
    }
    world.barrier();
}

/// What the others see of a rank.
inline void activity_tells_what_was_done(Communicator& world)
{
    Stream stream;
    RankActivity& activity = world.activity();
    activity.set_step(12);
    activity.note("forward of micro-batch", 3);
    EXPECT_EQ(describe(activity.record()), "step 12, after forward of micro-batch 3");
    if (world.size() == 1) { return; }
    std::vector<std::int64_t> ranks = all_ranks(world);
    const auto group = world.subgroup("tp", ranks);
    const std::uint64_t before = activity.record().progress;
    std::vector<float> data(10, 1);
    group->all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
    group->all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
    EXPECT_EQ(describe(activity.record()), "step 12, after all_reduce of 'tp' #2");
    EXPECT_GE(activity.record().progress, before + 2);
    EXPECT_EQ(&group->activity(), &activity);
}

inline const std::vector<ConformanceCase>& conformance_cases()
{
    static const std::vector<ConformanceCase> cases{
        {"AllReduceIsTheSerialSum", 1, all_reduce_is_the_serial_sum},
        {"ALargeAllReduceIsTheSerialSum", 1, a_large_all_reduce_is_the_serial_sum},
        {"ABf16SumIsTakenInFp32AndRoundedOnce", 1, a_bf16_sum_is_taken_in_fp32_and_rounded_once},
        {"AllReduceFindsTheMaximum", 1, all_reduce_finds_the_maximum},
        {"AMaximumWithNanIsNan", 1, a_maximum_with_nan_is_nan},
        {"ReduceScatterIsTheSerialSum", 1, reduce_scatter_is_the_serial_sum},
        {"AllGatherKeepsEveryByte", 1, all_gather_keeps_every_byte},
        {"BroadcastComesFromEveryRoot", 1, broadcast_comes_from_every_root},
        {"ReduceScatterAndAllGatherMakeAnAllReduce", 1, reduce_scatter_and_all_gather_make_an_all_reduce},
        {"ASumInPiecesIsTheSumInOne", 1, a_sum_in_pieces_is_the_sum_in_one},
        {"OperationsUnderWayEndInAnyOrder", 1, operations_under_way_end_in_any_order},
        {"LargeOperationsOfEveryKindAreUnderWayTogether", 1, large_operations_of_every_kind_are_under_way_together},
        {"MessagesArriveInTheOrderSent", 2, messages_arrive_in_the_order_sent},
        {"AChainOfMessagesPassesThroughAll", 2, a_chain_of_messages_passes_through_all},
        {"ASubgroupSumsInItsOwnOrder", 1, a_subgroup_sums_in_its_own_order},
        {"SeveralGroupsWorkAtOnce", 2, several_groups_work_at_once},
        {"ActivityTellsWhatWasDone", 1, activity_tells_what_was_done},
    };
    return cases;
}

}  // namespace plimsoll::testing
