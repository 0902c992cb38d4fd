#include "comm/exchange.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <numeric>

namespace plimsoll
{
namespace
{

BufferView view_of(void* data, Dtype dtype, std::int64_t count)
{
    BufferView view;
    view.data = data;
    view.dtype = dtype;
    view.count = count;
    return view;
}

std::vector<std::int64_t> gather_lengths(Communicator& group, std::int64_t mine)
{
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(group.size()));
    Stream stream;
    group.all_gather(view_of(&mine, Dtype::i64, 1), view_of(lengths.data(), Dtype::i64, group.size()), stream).synchronize();
    return lengths;
}

std::vector<std::string> gather_padded(Communicator& group, std::string mine, const std::vector<std::int64_t>& lengths,
                                       std::int64_t longest)
{
    mine.resize(static_cast<std::size_t>(longest));
    std::string all(static_cast<std::size_t>(longest * group.size()), '\0');
    Stream stream;
    group.all_gather(view_of(mine.data(), Dtype::u8, longest), view_of(all.data(), Dtype::u8, longest * group.size()), stream)
        .synchronize();
    std::vector<std::string> parts;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    {
        parts.push_back(all.substr(rank * static_cast<std::size_t>(longest), static_cast<std::size_t>(lengths[rank])));
    }
    return parts;
}

void broadcast_in_place(Communicator& group, std::string& bytes, std::int64_t root)
{
    if (bytes.empty()) { return; }
    Stream stream;
    group.broadcast(view_of(bytes.data(), Dtype::u8, static_cast<std::int64_t>(bytes.size())), root, stream).synchronize();
}

/// How a rank fared: empty text for well.
struct Outcome
{
    ExitCode exit_code = ExitCode::failed;
    std::string text;
    std::exception_ptr error;
};

Outcome attempt(const std::function<void()>& body)
{
    Outcome outcome;
    try
    {
        body();
    }
    catch (const CommError&)
    {
        throw;  // nobody can be asked any more
    }
    catch (const Error& error)
    {
        outcome.exit_code = error.exit_code();
        outcome.text = error.what();
        outcome.error = std::current_exception();
    }
    catch (const std::bad_alloc&)
    {
        outcome.text = "out of memory (the system refused an allocation)";
        outcome.error = std::current_exception();
    }
    catch (const std::exception& error)
    {
        outcome.text = error.what();
        outcome.error = std::current_exception();
    }
    return outcome;
}

}  // namespace

std::vector<std::string> all_gather_bytes(Communicator& group, const std::string& mine)
{
    if (group.size() == 1) { return {mine}; }
    const std::vector<std::int64_t> lengths = gather_lengths(group, static_cast<std::int64_t>(mine.size()));
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    if (total == 0) { return std::vector<std::string>(lengths.size()); }
    constexpr std::int64_t small = 64 * 1024;
    if (longest * group.size() <= std::max(2 * total, small)) { return gather_padded(group, mine, lengths, longest); }
    // One long part among short ones: padding all to its length would take size() times the memory.
    std::vector<std::string> parts;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    {
        const bool is_mine = static_cast<std::int64_t>(rank) == group.rank();
        parts.push_back(is_mine ? mine : std::string(static_cast<std::size_t>(lengths[rank]), '\0'));
        broadcast_in_place(group, parts.back(), static_cast<std::int64_t>(rank));
    }
    return parts;
}

std::string broadcast_bytes(Communicator& group, const std::string& bytes, std::int64_t root)
{
    std::int64_t length = group.rank() == root ? static_cast<std::int64_t>(bytes.size()) : 0;
    Stream stream;
    group.broadcast(view_of(&length, Dtype::i64, 1), root, stream).synchronize();
    std::string result = group.rank() == root ? bytes : std::string(static_cast<std::size_t>(length), '\0');
    broadcast_in_place(group, result, root);
    return result;
}

void agree(Communicator& group, const std::function<void()>& body)
{
    const Outcome mine = attempt(body);
    if (group.size() == 1)
    {
        if (mine.error) { std::rethrow_exception(mine.error); }
        return;
    }
    MessageWriter message;
    if (mine.error)
    {
        message.add(static_cast<std::int64_t>(mine.exit_code));
        message.add_text(mine.text);
    }
    const std::vector<std::string> all = all_gather_bytes(group, message.bytes());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
    {
        if (all[rank].empty()) { continue; }
        MessageReader reader(all[rank]);
        const auto exit_code = static_cast<ExitCode>(reader.get<std::int64_t>());
        IoError error(fmt::format("rank {}: {}", rank, reader.get_text()));
        error.set_exit_code(exit_code);
        throw error;
    }
}

void MessageWriter::add_text(const std::string& text)
{
    add(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
}

std::string MessageReader::get_text()
{
    const auto length = get<std::uint64_t>();
    EXPECT(length <= bytes_.size() - at_);
    return std::string(take(static_cast<std::size_t>(length)), static_cast<std::size_t>(length));
}

const char* MessageReader::take(std::size_t num_bytes)
{
    EXPECT(num_bytes <= bytes_.size() - at_);
    const char* place = bytes_.data() + at_;
    at_ += num_bytes;
    return place;
}

}  // namespace plimsoll
