#include "io/outside_crc.hpp"

#include <algorithm>

#include "io/file.hpp"

namespace plimsoll
{

std::uint32_t crc32c_outside(const std::string& path, std::vector<std::pair<std::int64_t, std::int64_t>> ranges)
{
    std::sort(ranges.begin(), ranges.end());
    const File file(path, File::Mode::read);
    const std::int64_t end = file.size();
    ranges.emplace_back(end, end);
    std::vector<char> buffer(1 << 20);
    std::uint32_t crc = 0;
    std::int64_t at = 0;
    for (const auto& range : ranges)
    {
        while (at < std::min(range.first, end))
        {
            const std::int64_t now =
                std::min<std::int64_t>(static_cast<std::int64_t>(buffer.size()), std::min(range.first, end) - at);
            file.read_at(buffer.data(), now, at);
            crc = crc32c(buffer.data(), now, crc);
            at += now;
        }
        at = std::max(at, range.second);
    }
    return crc;
}

}  // namespace plimsoll
