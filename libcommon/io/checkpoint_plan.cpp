#include "io/checkpoint_plan.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "comm/exchange.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"

namespace plimsoll::checkpoint
{
namespace
{

/// A box of the checkpoint and the ranks that hold it.
struct Piece
{
    const CheckpointBox* box = nullptr;
    std::size_t name = 0;
    std::int64_t bytes = 0;
    std::vector<std::int64_t> holders;
    std::int64_t writer = 0;
};

std::int64_t num_files(std::int64_t num_ranks, std::int64_t ranks_per_file)
{
    return (num_ranks + ranks_per_file - 1) / ranks_per_file;
}

std::unordered_map<std::string, std::size_t> number_names(const std::vector<std::vector<CheckpointBox>>& held,
                                                          std::vector<std::string>& names)
{
    std::unordered_map<std::string, std::size_t> numbers;
    for (const std::vector<CheckpointBox>& boxes : held)
    {
        for (const CheckpointBox& box : boxes)
        {
            const std::string& name = box.tensor.name;
            EXPECT(!name.empty() && name.find('/') == std::string::npos && name != "." && name.find('\0') == std::string::npos);
            if (numbers.emplace(name, names.size()).second) { names.push_back(name); }
        }
    }
    return numbers;
}

/// All boxes, replicas together, in the order in which they will stand in files.
std::vector<Piece> collect_pieces(const std::vector<std::vector<CheckpointBox>>& held,
                                  const std::unordered_map<std::string, std::size_t>& numbers)
{
    std::vector<Piece> all;
    for (std::size_t rank = 0; rank < held.size(); ++rank)
    {
        for (const CheckpointBox& box : held[rank])
        {
            EXPECT(box.box.offset.size() == box.tensor.shape.size() && box.box.shape.size() == box.tensor.shape.size());
            Piece piece;
            piece.box = &box;
            piece.name = numbers.at(box.tensor.name);
            piece.bytes = box.box.num_elements() * dtype_bytes(box.tensor.dtype);
            piece.holders = {static_cast<std::int64_t>(rank)};
            all.push_back(std::move(piece));
        }
    }
    const auto place = [](const Piece& piece)
    { return std::tie(piece.box->tensor.state, piece.name, piece.box->box.offset, piece.box->box.shape); };
    std::stable_sort(all.begin(), all.end(), [&place](const Piece& a, const Piece& b) { return place(a) < place(b); });
    std::vector<Piece> pieces;
    for (Piece& piece : all)
    {
        if (pieces.empty() || place(pieces.back()) != place(piece))
        {
            pieces.push_back(std::move(piece));
            continue;
        }
        const std::int64_t rank = piece.holders[0];
        if (pieces.back().holders.back() == rank)
        {
            throw InternalError(fmt::format("checkpoint plan: box {} of {} is listed twice", box_text(piece.box->box),
                                            tensor_path(piece.box->tensor.state, piece.box->tensor.name)));
        }
        pieces.back().holders.push_back(rank);
    }
    return pieces;
}

void check_tensor(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end)
{
    const CheckpointTensor& tensor = pieces[begin].box->tensor;
    std::vector<Box> boxes;
    for (std::size_t k = begin; k < end; ++k)
    {
        EXPECT(pieces[k].box->tensor.shape == tensor.shape && pieces[k].box->tensor.dtype == tensor.dtype);
        boxes.push_back(pieces[k].box->box);
    }
    const std::string fault = coverage_fault(tensor.shape, boxes);
    if (!fault.empty())
    {
        throw InternalError(fmt::format("checkpoint plan: {}: {}", tensor_path(tensor.state, tensor.name), fault));
    }
}

std::vector<CheckpointTensor> check_tensors(const std::vector<Piece>& pieces)
{
    std::vector<CheckpointTensor> tensors;
    std::size_t begin = 0;
    for (std::size_t k = 0; k < pieces.size(); ++k)
    {
        const bool is_last = k + 1 == pieces.size() || pieces[k + 1].name != pieces[k].name ||
                             pieces[k + 1].box->tensor.state != pieces[k].box->tensor.state;
        if (!is_last) { continue; }
        check_tensor(pieces, begin, k + 1);
        tensors.push_back(pieces[k].box->tensor);
        begin = k + 1;
    }
    return tensors;
}

void choose_writers(std::vector<Piece>& pieces, std::int64_t num_ranks, std::int64_t ranks_per_file)
{
    std::vector<std::int64_t> load(static_cast<std::size_t>(num_ranks), 0);
    std::vector<std::int64_t> file_load(static_cast<std::size_t>(num_files(num_ranks, ranks_per_file)), 0);
    const auto take = [&](const Piece& piece)
    {
        load[static_cast<std::size_t>(piece.writer)] += piece.bytes;
        file_load[static_cast<std::size_t>(piece.writer / ranks_per_file)] += piece.bytes;
    };
    const auto busyness = [&](std::int64_t rank)
    { return std::make_pair(load[static_cast<std::size_t>(rank)], file_load[static_cast<std::size_t>(rank / ranks_per_file)]); };
    std::vector<Piece*> shared;
    for (Piece& piece : pieces)
    {
        piece.writer = piece.holders[0];
        if (piece.holders.size() == 1) { take(piece); }
        else { shared.push_back(&piece); }
    }
    std::stable_sort(shared.begin(), shared.end(), [](const Piece* a, const Piece* b) { return a->bytes > b->bytes; });
    for (Piece* piece : shared)
    {
        for (const std::int64_t rank : piece->holders)
        {
            if (busyness(rank) < busyness(piece->writer)) { piece->writer = rank; }
        }
        take(*piece);
    }
}

std::vector<FilePlan> distribute(const std::vector<Piece>& pieces, std::int64_t num_ranks, std::int64_t ranks_per_file)
{
    std::vector<FilePlan> groups(static_cast<std::size_t>(num_files(num_ranks, ranks_per_file)));
    for (std::size_t k = 0; k < groups.size(); ++k) { groups[k].creator = static_cast<std::int64_t>(k) * ranks_per_file; }
    for (const Piece& piece : pieces)
    {
        FilePlan& file = groups[static_cast<std::size_t>(piece.writer / ranks_per_file)];
        file.boxes.push_back(*piece.box);
        file.owners.push_back(piece.writer);
    }
    std::vector<FilePlan> files;
    for (FilePlan& group : groups)
    {
        if (!group.boxes.empty()) { files.push_back(std::move(group)); }
    }
    if (files.empty()) { files.emplace_back(); }
    return files;
}

}  // namespace

StepPlan plan_step(const std::vector<std::vector<CheckpointBox>>& held, std::int64_t ranks_per_file)
{
    EXPECT(!held.empty());
    StepPlan plan;
    const auto numbers = number_names(held, plan.names);
    std::vector<Piece> pieces = collect_pieces(held, numbers);
    plan.tensors = check_tensors(pieces);
    const auto num_ranks = static_cast<std::int64_t>(held.size());
    if (ranks_per_file == 0) { ranks_per_file = (num_ranks + max_default_files - 1) / max_default_files; }
    EXPECT(ranks_per_file > 0);
    choose_writers(pieces, num_ranks, ranks_per_file);
    plan.files = distribute(pieces, num_ranks, ranks_per_file);
    return plan;
}

std::string pack_boxes(const std::vector<CheckpointBox>& boxes)
{
    MessageWriter message;
    message.add(static_cast<std::uint64_t>(boxes.size()));
    const CheckpointTensor* last = nullptr;
    for (const CheckpointBox& box : boxes)
    {
        // The boxes of a tensor stand together: it is sent once.
        const bool is_same = last != nullptr && last->state == box.tensor.state && last->name == box.tensor.name &&
                             last->dtype == box.tensor.dtype && last->shape == box.tensor.shape;
        message.add(static_cast<std::uint8_t>(is_same));
        if (!is_same)
        {
            message.add(box.tensor.state);
            message.add(box.tensor.dtype);
            message.add_text(box.tensor.name);
            message.add_list(box.tensor.shape);
        }
        message.add_list(box.box.offset);
        message.add_list(box.box.shape);
        last = &box.tensor;
    }
    return message.bytes();
}

std::vector<CheckpointBox> unpack_boxes(const std::string& bytes)
{
    MessageReader message(bytes);
    std::vector<CheckpointBox> boxes(static_cast<std::size_t>(message.get<std::uint64_t>()));
    for (std::size_t k = 0; k < boxes.size(); ++k)
    {
        CheckpointTensor& tensor = boxes[k].tensor;
        if (message.get<std::uint8_t>() != 0) { tensor = boxes[k - 1].tensor; }
        else
        {
            tensor.state = message.get<CheckpointState>();
            tensor.dtype = message.get<Dtype>();
            tensor.name = message.get_text();
            tensor.shape = message.get_list<std::int64_t>();
        }
        boxes[k].box.offset = message.get_list<std::int64_t>();
        boxes[k].box.shape = message.get_list<std::int64_t>();
    }
    EXPECT(message.at_end());
    return boxes;
}

}  // namespace plimsoll::checkpoint
