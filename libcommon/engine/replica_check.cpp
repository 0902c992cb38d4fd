#include "engine/replica_check.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"
#include "comm/exchange.hpp"
#include "engine/recorder.hpp"

namespace plimsoll
{
namespace
{

template<class Number>
BufferView numbers(std::vector<Number>& values)
{
    static_assert(sizeof(Number) == 8, "sent as i64");
    BufferView view;
    view.data = values.data();
    view.dtype = Dtype::i64;
    view.count = static_cast<std::int64_t>(values.size());
    return view;
}

/// "rank 5", "ranks 1 3 7".
std::string ranks_text(const std::vector<std::int64_t>& ranks)
{
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, " "));
}

/// "rank 5 from ranks 1 3 7": the value that most ranks have is taken for right, of two the first rank's.
std::string who_differs(const std::vector<std::uint64_t>& values, const std::vector<std::int64_t>& world_ranks)
{
    std::uint64_t common = values.front();
    for (const std::uint64_t value : values)
    {
        if (std::count(values.begin(), values.end(), value) > std::count(values.begin(), values.end(), common)) { common = value; }
    }
    std::vector<std::int64_t> agree, differ;
    for (std::size_t i = 0; i < values.size(); ++i) { (values[i] == common ? agree : differ).push_back(world_ranks[i]); }
    return fmt::format("{} from {}", ranks_text(differ), ranks_text(agree));
}

}  // namespace

ReplicaCheck::ReplicaCheck(const FlatLayout& flat, const ParallelLayout& layout, RankGroups& groups)
    : flat_(flat), groups_(groups)
{
    for (std::size_t u = 0; u < flat_.units.size(); ++u)
    {
        for (const FlatTensor& tensor : flat_.units[u].tensors) { tensors_.push_back({static_cast<std::int64_t>(u), &tensor}); }
    }
    const auto whole_over_tp = [](const Place& place) { return place.tensor->spec.shard.tp != Placement::shard; };
    const auto unit_of = [&](const Place& place) -> const FlatUnit& { return flat_.units[static_cast<std::size_t>(place.unit)]; };
    add(*groups_.dp, "data parallel", [&](const Place& place) { return !is_gathered(unit_of(place), layout, flat_.element_bytes); });
    add(*groups_.replicas, "data parallel", [](const Place&) { return true; });
    add(*groups_.tp, "tensor parallel", whole_over_tp);
    add(*groups_.kv, "shared KV head", [&](const Place& place)
        { return !whole_over_tp(place) && partial_gradient_ranks(place.tensor->spec.shard, layout.tp) > 1; });
    add(*groups_.embedding, "tied embedding", [&](const Place& place)
        { return unit_of(place).kind == UnitKind::tied_embedding; });
}

template<class Holds>
void ReplicaCheck::add(Communicator& group, const char* title, const Holds& holds)
{
    if (group.size() == 1) { return; }
    Copies copies;
    copies.group = &group;
    copies.title = title;
    for (std::size_t t = 0; t < tensors_.size(); ++t)
    {
        if (holds(tensors_[t])) { copies.tensors.push_back(t); }
    }
    // An embedding group also stands where nothing is tied.
    if (!copies.tensors.empty()) { copies_.push_back(std::move(copies)); }
}

std::vector<std::uint64_t> ReplicaCheck::digests(const std::function<HeldParams(std::int64_t unit)>& params) const
{
    std::vector<std::uint64_t> all;
    HeldParams held;
    std::int64_t unit = -1;
    for (const Place& place : tensors_)
    {
        if (place.unit != unit) { held = params(unit = place.unit); }
        const FlatTensor& tensor = *place.tensor;
        const std::int64_t begin = std::max(tensor.offset, held.begin);
        const std::int64_t end = std::min(tensor.offset + tensor.num_elements(), held.begin + held.values.count);
        if (begin >= end)
        {
            all.push_back(0);
            continue;
        }
        const BufferView part = held.values.slice(begin - held.begin, end - begin);
        all.push_back(element_digest(part.data, part.count, dtype_bytes(part.dtype),
                                     static_cast<std::uint64_t>(begin - tensor.offset), hash_name(tensor.spec.name)));
    }
    return all;
}

std::string ReplicaCheck::difference(const Copies& copies, const std::vector<std::uint64_t>& digests, Stream& stream) const
{
    std::vector<std::uint64_t> mine;
    std::uint64_t joined = 0;
    for (const std::size_t tensor : copies.tensors)
    {
        mine.push_back(digests[tensor]);
        joined = hash_numbers({joined, digests[tensor]});
    }
    std::vector<std::uint64_t> own = {joined}, all(static_cast<std::size_t>(copies.group->size()));
    copies.group->all_gather(numbers(own), numbers(all), stream).wait(stream);
    const bool equal = std::all_of(all.begin(), all.end(), [&](std::uint64_t value) { return value == all.front(); });
    return equal ? std::string() : name_difference(copies, mine);
}

std::string ReplicaCheck::name_difference(const Copies& copies, const std::vector<std::uint64_t>& mine) const
{
    MessageWriter writer;
    writer.add(groups_.world->rank());
    writer.add_list(mine);
    std::vector<std::int64_t> world_ranks;
    std::vector<std::vector<std::uint64_t>> lists;
    for (const std::string& bytes : all_gather_bytes(*copies.group, writer.bytes()))
    {
        MessageReader reader(bytes);
        world_ranks.push_back(reader.get<std::int64_t>());
        lists.push_back(reader.get_list<std::uint64_t>());
        ENSURE(lists.back().size() == mine.size());
    }
    std::string first;
    std::int64_t differing = 0;
    for (std::size_t t = 0; t < mine.size(); ++t)
    {
        std::vector<std::uint64_t> values;
        for (const auto& list : lists) { values.push_back(list[t]); }
        if (std::count(values.begin(), values.end(), values.front()) == static_cast<std::int64_t>(values.size())) { continue; }
        ++differing;
        if (!first.empty()) { continue; }
        first = fmt::format("{} copies of '{}' differ, {}", copies.title, tensors_[copies.tensors[t]].tensor->spec.name,
                            who_differs(values, world_ranks));
    }
    ENSURE(differing > 0);
    return differing == 1 ? first : fmt::format("{} (and of {} more)", first, differing - 1);
}

void ReplicaCheck::run(std::int64_t step, const std::function<HeldParams(std::int64_t unit)>& params, Stream& stream)
{
    if (groups_.world->size() == 1) { return; }
    const OpScope scope(PlanOp::replicas);
    set_recorded_phase(StepPhase::update, -1);
    const std::vector<std::uint64_t> mine = copies_.empty() ? std::vector<std::uint64_t>() : digests(params);
    std::string fault;
    for (const Copies& copies : copies_)
    {
        const std::string found = difference(copies, mine, stream);
        if (!found.empty()) { fault += (fault.empty() ? "" : "; ") + found; }
    }
    std::vector<std::int64_t> faulty = {fault.empty() ? 0 : 1};
    groups_.world->all_reduce(numbers(faulty), ReduceOp::max, stream).wait(stream);
    if (faulty.front() == 0) { return; }
    std::string first;
    std::set<std::string> others;
    for (const std::string& text : all_gather_bytes(*groups_.world, fault))
    {
        if (text.empty()) { continue; }
        if (first.empty()) { first = text; }
        else if (text != first) { others.insert(text); }
    }
    throw NumericError(fmt::format("{} at step {}{} (parameters are no longer those of one model: a broken device, or a fault "
                                   "of this program). resume the last checkpoint, on other nodes",
                                   first, step,
                                   others.empty() ? "" : fmt::format("; {} more like this in other groups", others.size())));
}

}  // namespace plimsoll
