#include "io/checkpoint_box.hpp"

#include <algorithm>

#include "base/digest.hpp"
#include "base/error.hpp"

namespace plimsoll::checkpoint
{

BoxDigest::BoxDigest(const Box& box, const std::vector<std::int64_t>& global_shape, std::int64_t element_bytes,
                     std::uint64_t salt)
    : runs_(box, whole_box(global_shape)), element_bytes_(element_bytes), salt_(salt)
{
}

void BoxDigest::add(const void* data, std::int64_t num_elements)
{
    const auto* cursor = static_cast<const char*>(data);
    while (num_elements > 0)
    {
        if (run_.count == 0) { EXPECT(runs_.next(run_)); }
        const std::int64_t now = std::min(num_elements, run_.count);
        value_ += element_digest(cursor, now, element_bytes_, static_cast<std::uint64_t>(run_.target), salt_);
        cursor += now * element_bytes_;
        num_elements -= now;
        run_.target += now;
        run_.count -= now;
    }
}

std::uint64_t box_range_digest(const Box& box, const std::vector<std::int64_t>& global_shape, std::int64_t element_bytes,
                               std::uint64_t salt, std::int64_t begin, std::int64_t count, const void* data)
{
    const auto* cursor = static_cast<const char*>(data);
    if (box.shape.empty())
    {
        BoxDigest digest(box, global_shape, element_bytes, salt);
        digest.add(cursor, count);
        return digest.value();
    }
    std::uint64_t sum = 0;
    for (Box part : boxes_of_flat_range(box.shape, begin, begin + count))
    {
        for (std::size_t d = 0; d < part.offset.size(); ++d) { part.offset[d] += box.offset[d]; }
        BoxDigest digest(part, global_shape, element_bytes, salt);
        digest.add(cursor, part.num_elements());
        sum += digest.value();
        cursor += part.num_elements() * element_bytes;
    }
    return sum;
}

}  // namespace plimsoll::checkpoint
