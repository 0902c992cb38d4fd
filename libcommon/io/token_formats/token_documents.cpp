#include "io/token_formats/token_documents.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace plimsoll
{

void check_ids(const std::vector<std::uint32_t>& ids, std::int64_t vocab, std::int64_t document)
{
    std::uint32_t highest = 0;
    for (const std::uint32_t id : ids) { highest = std::max(highest, id); }
    if (ids.empty() || highest < vocab) { return; }
    const auto at = std::find_if(ids.begin(), ids.end(), [&](std::uint32_t id) { return id >= vocab; });
    throw FormatError(fmt::format("token id {} at position {} of document {} is not below the vocabulary of {}", *at,
                                  at - ids.begin(), document, vocab));
}

}  // namespace plimsoll
