#pragma once
/// Bytes of any length between the ranks of a group, and agreement on success: for metadata, not for tensors.
///
/// All functions are collective: every rank of the group calls them in the same order.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

/// What each rank gave, in rank order, on every rank. Lengths may differ and be 0.
std::vector<std::string> all_gather_bytes(Communicator& group, const std::string& mine);

/// What `root` gave, on every rank; what others give is not looked at.
std::string broadcast_bytes(Communicator& group, const std::string& bytes, std::int64_t root);

/// Runs `body` on this rank and lets every rank return only if it succeeded on all.
/// @throws on all ranks alike when any failed: in a group of one what `body` threw, else an IoError
/// "rank 2: cannot write 'x' (no space left on device)" of the first rank that failed, with its exit code.
void agree(Communicator& group, const std::function<void()>& body);

/// Numbers and strings in a row, to be read by MessageReader in the same order. In the machine's byte order: all ranks
/// of a job have one.
class MessageWriter
{
  public:
    template<class Number>
    void add(Number value)
    {
        static_assert(std::is_trivially_copyable<Number>::value, "bytes are sent as they are");
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void add_text(const std::string& text);
    /// Trivially copyable elements.
    template<class Element>
    void add_list(const std::vector<Element>& list)
    {
        static_assert(std::is_trivially_copyable<Element>::value, "bytes are sent as they are");
        add(static_cast<std::uint64_t>(list.size()));
        if (!list.empty()) { bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(Element)); }
    }
    const std::string& bytes() const { return bytes_; }

  private:
    std::string bytes_;
};

/// `bytes` outlive the reader. @throws InternalError when they end too early
class MessageReader
{
  public:
    explicit MessageReader(const std::string& bytes) : bytes_(bytes) {}
    template<class Number>
    Number get()
    {
        Number value{};
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }
    std::string get_text();
    template<class Element>
    std::vector<Element> get_list()
    {
        const auto number = get<std::uint64_t>();
        EXPECT(number <= (bytes_.size() - at_) / sizeof(Element));
        std::vector<Element> list(static_cast<std::size_t>(number));
        if (number > 0) { std::memcpy(list.data(), take(list.size() * sizeof(Element)), list.size() * sizeof(Element)); }
        return list;
    }
    bool at_end() const { return at_ == bytes_.size(); }

  private:
    const char* take(std::size_t num_bytes);
    const std::string& bytes_;
    std::size_t at_ = 0;
};

}  // namespace plimsoll
