#include "comm_mpi/shared_operations.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"

namespace plimsoll
{

namespace
{

using Stage = SharedWindow::Stage;

std::int64_t pieces_of(std::int64_t count, std::int64_t piece) { return (count + piece - 1) / piece; }

void copy(char* to, const char* from, std::int64_t bytes)
{
    if (bytes > 0) { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
}

/// The stages of its pieces in turn. `piece` counts from 0 in the operation, `ordinal` in the window.
class SharedReduction : public Operation
{
  public:
    /// `piece_elements`: what a slot has room for, of call.count elements
    SharedReduction(std::shared_ptr<SharedWindow> window, const SharedCall& call, std::int64_t piece_elements)
        : window_(std::move(window)), call_(call), piece_elements_(piece_elements),
          num_pieces_(pieces_of(call.count, piece_elements)), first_(window_->take_pieces(num_pieces_))
    {
        EXPECT(piece_elements >= 1);
        name = call_.name;
        window_->reserve();
        is_done = num_pieces_ == 0;
    }

    /// The piece that is furthest on: what it reads is most likely still in a cache. Slots are filled ahead when nothing else is
    /// possible.
    bool advance() override
    {
        if (is_withdrawn_) { return false; }
        if (try_stage(Stage::taken))
        {
            take(position_[Stage::taken]);
            pass(Stage::taken);
            is_done = position_[Stage::taken] == num_pieces_;
            return true;
        }
        if (try_stage(Stage::reduced))
        {
            reduce(position_[Stage::reduced]);
            pass(Stage::reduced);
            return true;
        }
        if (try_stage(Stage::filled))
        {
            const std::int64_t piece = position_[Stage::filled];
            fill(piece);
            window_->sign(first_ + piece, call_);
            pass(Stage::filled);
            return true;
        }
        return false;
    }

    /// The others read copies only: nothing to wait for.
    void withdraw() noexcept override { is_withdrawn_ = true; }

  protected:
    virtual void fill(std::int64_t piece) = 0;
    virtual void reduce(std::int64_t piece) = 0;
    /// Whether take() may read; called after the own reduce().
    virtual bool may_take(std::int64_t) { return true; }
    virtual void take(std::int64_t) {}

    const SharedCall& call() const { return call_; }
    std::int64_t own() const { return window_->own(); }
    std::int64_t size() const { return window_->size(); }
    std::int64_t width() const { return dtype_bytes(call_.dtype); }
    char* slot(std::int64_t member, std::int64_t piece) { return window_->slot(member, first_ + piece); }
    std::int64_t begin_of(std::int64_t piece) const { return piece * piece_elements_; }
    std::int64_t count_of(std::int64_t piece) const { return std::min(piece_elements_, call_.count - begin_of(piece)); }
    bool others_passed(Stage stage, std::int64_t piece) { return window_->others_passed(stage, first_ + piece); }

    /// What each member brings to the sum, in group order. `mine` is read from the buffer, the others' from their slots.
    template<class PlaceOf>
    const void* const* inputs(std::int64_t piece, const char* mine, const PlaceOf& place_of)
    {
        inputs_.clear();
        for (std::int64_t member = 0; member < size(); ++member)
        {
            if (member != own()) { check_agreement(member, piece); }
            inputs_.push_back(member == own() ? mine : place_of(member));
        }
        return inputs_.data();
    }

  private:
    void check_agreement(std::int64_t member, std::int64_t piece) const
    {
        const std::string other = window_->disagreement(member, first_ + piece, call_);
        if (other.empty()) { return; }
        throw CommError(fmt::format("ranks disagree about operation #{} of '{}': member {} calls {}, member {} {}", sequence,
                                    watchdog->group(), own(), text_of(call_), member, other));
    }

    bool try_stage(Stage stage)
    {
        const std::int64_t piece = position_[stage];
        if (piece == num_pieces_ || window_->passed(stage) != first_ + piece) { return false; }
        switch (stage)
        {
            // Whoever was to read what the slot held has done so.
            case Stage::filled:
                return first_ + piece < window_->num_slots() || others_passed(Stage::taken, piece - window_->num_slots());
            case Stage::reduced: return piece < position_[Stage::filled] && others_passed(Stage::filled, piece);
            case Stage::taken: return piece < position_[Stage::reduced] && may_take(piece);
        }
        return false;
    }

    void pass(Stage stage)
    {
        window_->pass(stage);
        ++position_[stage];
    }

    std::shared_ptr<SharedWindow> window_;
    SharedCall call_;
    std::int64_t piece_elements_;
    std::int64_t num_pieces_;
    std::int64_t first_;
    std::array<std::int64_t, SharedWindow::num_stages> position_{};
    bool is_withdrawn_ = false;
    std::vector<const void*> inputs_;
};

/// A slot mirrors a piece of the buffer: what the member brings to the others' parts, and the sum of its own.
class SharedAllReduce final : public SharedReduction
{
  public:
    SharedAllReduce(std::shared_ptr<SharedWindow> window, const SharedCall& call, const BufferView& data)
        : SharedReduction(std::move(window), call, SharedWindow::slot_bytes / dtype_bytes(data.dtype)),
          data_(static_cast<char*>(data.data))
    {
    }

  private:
    bool may_take(std::int64_t piece) override { return others_passed(Stage::reduced, piece); }

    char* at(std::int64_t piece, std::int64_t element) { return data_ + (begin_of(piece) + element) * width(); }
    Part part(std::int64_t piece, std::int64_t member) const { return part_of(count_of(piece), size(), member); }

    void fill(std::int64_t piece) override
    {
        const Part mine = part(piece, own());
        const std::int64_t behind = mine.first + mine.count;
        char* to = slot(own(), piece);
        copy(to, at(piece, 0), mine.first * width());
        copy(to + behind * width(), at(piece, behind), (count_of(piece) - behind) * width());
    }

    void reduce(std::int64_t piece) override
    {
        const Part mine = part(piece, own());
        const void* const* from = inputs(piece, at(piece, mine.first),
                                         [&](std::int64_t member) { return slot(member, piece) + mine.first * width(); });
        char* sums = slot(own(), piece) + mine.first * width();
        reduce_ranks(call().dtype, call().op, sums, from, size(), mine.count);
        copy(at(piece, mine.first), sums, mine.count * width());
    }

    void take(std::int64_t piece) override
    {
        for (std::int64_t k = 1; k < size(); ++k)
        {
            const std::int64_t member = (own() + k) % size();
            const Part theirs = part(piece, member);
            copy(at(piece, theirs.first), slot(member, piece) + theirs.first * width(), theirs.count * width());
        }
    }

    char* data_;
};

/// A slot holds a piece of every other member's part, the next member's first.
class SharedReduceScatter final : public SharedReduction
{
  public:
    SharedReduceScatter(std::shared_ptr<SharedWindow> window, const SharedCall& call, const BufferView& input,
                        const BufferView& output)
        : SharedReduction(window, call, SharedWindow::slot_bytes / dtype_bytes(input.dtype) / (window->size() - 1)),
          input_(static_cast<const char*>(input.data)), output_(static_cast<char*>(output.data))
    {
    }

  private:
    const char* part_at(std::int64_t member, std::int64_t piece) const
    {
        return input_ + (member * call().count + begin_of(piece)) * width();
    }
    /// Where `from` has its contribution to the part of `to`.
    char* place(std::int64_t from, std::int64_t to, std::int64_t piece)
    {
        return slot(from, piece) + (to - from - 1 + size()) % size() * count_of(piece) * width();
    }

    void fill(std::int64_t piece) override
    {
        for (std::int64_t k = 1; k < size(); ++k)
        {
            const std::int64_t member = (own() + k) % size();
            copy(place(own(), member, piece), part_at(member, piece), count_of(piece) * width());
        }
    }

    void reduce(std::int64_t piece) override
    {
        const void* const* from = inputs(piece, part_at(own(), piece),
                                         [&](std::int64_t member) { return place(member, own(), piece); });
        reduce_ranks(call().dtype, call().op, output_ + begin_of(piece) * width(), from, size(), count_of(piece));
    }

    const char* input_;
    char* output_;
};

SharedCall call_of(const char* name, const BufferView& smaller)
{
    SharedCall call;
    call.name = name;
    call.dtype = smaller.dtype;
    call.count = smaller.count;
    return call;
}

}  // namespace

std::shared_ptr<Operation> shared_all_reduce(std::shared_ptr<SharedWindow> window, const BufferView& data, ReduceOp op)
{
    SharedCall call = call_of("all_reduce", data);
    call.op = op;
    return std::make_shared<SharedAllReduce>(std::move(window), call, data);
}

std::shared_ptr<Operation> shared_reduce_scatter(std::shared_ptr<SharedWindow> window, const BufferView& input,
                                                 const BufferView& output)
{
    return std::make_shared<SharedReduceScatter>(std::move(window), call_of("reduce_scatter", output), input, output);
}

}  // namespace plimsoll
