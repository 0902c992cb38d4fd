#include "io/corpus_statistics.hpp"

namespace plimsoll
{

std::int64_t LengthHistogram::rounded(std::int64_t length)
{
    std::int64_t step = 1;
    while (length / step >= 64) { step *= 2; }
    return length / step * step;
}

std::int64_t LengthHistogram::quantile(double share) const
{
    std::int64_t total = 0;
    for (const auto& entry : counts_) { total += entry.second; }
    std::int64_t seen = 0;
    for (const auto& entry : counts_)
    {
        seen += entry.second;
        if (static_cast<double>(seen) >= share * static_cast<double>(total)) { return entry.first; }
    }
    return 0;
}

}  // namespace plimsoll
