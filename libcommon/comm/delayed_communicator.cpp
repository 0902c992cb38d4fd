#include "comm/delayed_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr unsigned char not_yet = 0xFF;

/// A range of the caller's buffer and its image in a copy.
struct Range
{
    char* callers = nullptr;
    char* copy = nullptr;
    std::int64_t bytes = 0;
};

/// The operation on copies, and what becomes of them.
class DelayedOperation final : public Work::Operation
{
  public:
    explicit DelayedOperation(std::string text) : text_(std::move(text)) {}

    /// A copy of the caller's buffer for the inner communicator to work on.
    BufferView copy_of(const BufferView& view)
    {
        copies_.push_back(std::make_unique<char[]>(static_cast<std::size_t>(std::max<std::int64_t>(1, view.bytes()))));
        BufferView copy = view;
        copy.data = copies_.back().get();
        if (view.count > 0) { std::memcpy(copy.data, view.data, static_cast<std::size_t>(view.bytes())); }
        return copy;
    }

    /// Elements [first, first + count) are read by the operation, and stay as they are: looked at when it is waited for.
    void reads(const BufferView& view, std::int64_t first, std::int64_t count)
    {
        const BufferView part = view.slice(first, count);
        inputs_.push_back(range_of(part, copy_of(part), 0, count));
    }

    /// They are written by the operation.
    void writes(const BufferView& view, const BufferView& copy, std::int64_t first, std::int64_t count)
    {
        const Range range = range_of(view, copy, first, count);
        if (range.bytes > 0) { std::memset(range.callers, not_yet, static_cast<std::size_t>(range.bytes)); }
        outputs_.push_back(range);
    }

    void start(Work inner) { inner_ = std::move(inner); }

    void finish() override
    {
        inner_.synchronize();
        for (const Range& range : inputs_)
        {
            const bool same = range.bytes == 0 || std::memcmp(range.callers, range.copy, static_cast<std::size_t>(range.bytes)) == 0;
            VALIDATE(same, InternalError, "an input of {} changed before it was waited for", text_);
        }
        for (const Range& range : outputs_)
        {
            const bool untouched = std::all_of(range.callers, range.callers + range.bytes,
                                               [](char byte) { return static_cast<unsigned char>(byte) == not_yet; });
            VALIDATE(untouched, InternalError, "the result buffer of {} was written to before it was waited for", text_);
            if (range.bytes > 0) { std::memcpy(range.callers, range.copy, static_cast<std::size_t>(range.bytes)); }
        }
    }

    void abandon() noexcept override { inner_ = Work(); }

  private:
    static Range range_of(const BufferView& view, const BufferView& copy, std::int64_t first, std::int64_t count)
    {
        Range range;
        const std::int64_t width = dtype_bytes(view.dtype);
        range.callers = static_cast<char*>(view.data) + first * width;
        range.copy = static_cast<char*>(copy.data) + first * width;
        range.bytes = count * width;
        return range;
    }

    std::string text_;
    std::vector<std::unique_ptr<char[]>> copies_;
    std::vector<Range> inputs_;
    std::vector<Range> outputs_;
    Work inner_;  // goes before the copies that it works on
};

class DelayedCommunicator final : public Communicator
{
  public:
    DelayedCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned) : inner_(inner), owned_(std::move(owned))
    {
    }

    std::string name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }

    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        auto operation = make("all_reduce");
        const BufferView copy = operation->copy_of(data);
        operation->writes(data, copy, 0, data.count);
        return start(operation, inner_.all_reduce(copy, op, stream));
    }

    Work reduce_scatter(BufferView input, BufferView output, Stream& stream) override
    {
        EXPECT(input.count == output.count * size());
        auto operation = make("reduce_scatter");
        const BufferView input_copy = operation->copy_of(input);
        const BufferView output_copy = operation->copy_of(output);
        const std::int64_t first = output.count * rank();
        if (output.data == input.slice(first, output.count).data)
        {
            operation->reads(input, 0, first);
            operation->reads(input, first + output.count, input.count - first - output.count);
        }
        else { operation->reads(input, 0, input.count); }
        operation->writes(output, output_copy, 0, output.count);
        return start(operation, inner_.reduce_scatter(input_copy, output_copy, stream));
    }

    Work all_gather(BufferView input, BufferView output, Stream& stream) override
    {
        EXPECT(output.count == input.count * size());
        auto operation = make("all_gather");
        const BufferView input_copy = operation->copy_of(input);
        const BufferView output_copy = operation->copy_of(output);
        const std::int64_t first = input.count * rank();
        operation->reads(input, 0, input.count);
        if (input.data == output.slice(first, input.count).data)
        {
            operation->writes(output, output_copy, 0, first);
            operation->writes(output, output_copy, first + input.count, output.count - first - input.count);
        }
        else { operation->writes(output, output_copy, 0, output.count); }
        return start(operation, inner_.all_gather(input_copy, output_copy, stream));
    }

    Work broadcast(BufferView data, std::int64_t root, Stream& stream) override
    {
        auto operation = make("broadcast");
        const BufferView copy = operation->copy_of(data);
        if (rank() == root) { operation->reads(data, 0, data.count); }
        else { operation->writes(data, copy, 0, data.count); }
        return start(operation, inner_.broadcast(copy, root, stream));
    }

    void barrier() override { inner_.barrier(); }

    Work send(BufferView data, std::int64_t peer, Stream& stream) override
    {
        auto operation = make("send");
        const BufferView copy = operation->copy_of(data);
        operation->reads(data, 0, data.count);
        return start(operation, inner_.send(copy, peer, stream));
    }

    Work recv(BufferView data, std::int64_t peer, Stream& stream) override
    {
        auto operation = make("recv");
        const BufferView copy = operation->copy_of(data);
        operation->writes(data, copy, 0, data.count);
        return start(operation, inner_.recv(copy, peer, stream));
    }

    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        return make_delayed_communicator(inner_.subgroup(std::move(name), ranks));
    }

    void progress() override { inner_.progress(); }
    RankActivity& activity() override { return inner_.activity(); }
    std::int64_t scratch_bytes() const override { return inner_.scratch_bytes(); }

  private:
    std::shared_ptr<DelayedOperation> make(const char* what) const
    {
        return std::make_shared<DelayedOperation>(fmt::format("{} of '{}'", what, inner_.name()));
    }

    static Work start(std::shared_ptr<DelayedOperation>& operation, Work inner)
    {
        operation->start(std::move(inner));
        return Work(std::move(operation));
    }

    Communicator& inner_;
    std::unique_ptr<Communicator> owned_;
};

}  // namespace

std::unique_ptr<Communicator> make_delayed_communicator(std::unique_ptr<Communicator> inner)
{
    Communicator& borrowed = *inner;
    return std::make_unique<DelayedCommunicator>(borrowed, std::move(inner));
}

std::unique_ptr<Communicator> make_delayed_communicator(Communicator& inner)
{
    return std::make_unique<DelayedCommunicator>(inner, nullptr);
}

}  // namespace plimsoll
