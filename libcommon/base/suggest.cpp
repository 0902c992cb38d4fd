#include "base/suggest.hpp"

#include <algorithm>
#include <cctype>

namespace plimsoll
{

namespace
{

std::string normalised(std::string_view name)
{
    std::string result(name);
    for (char& c : result) { c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
    return result;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b)
{
    const std::string x = normalised(a);
    const std::string y = normalised(b);
    std::vector<int> before(y.size() + 1), last(y.size() + 1), row(y.size() + 1);
    for (std::size_t j = 0; j <= y.size(); ++j) { last[j] = static_cast<int>(j); }
    for (std::size_t i = 1; i <= x.size(); ++i)
    {
        row[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= y.size(); ++j)
        {
            const int change = x[i - 1] == y[j - 1] ? 0 : 1;
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
            if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
            {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        std::swap(before, last);
        std::swap(last, row);
    }
    return last[y.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates)
{
    std::string best;
    int best_distance = -1;
    for (const std::string& candidate : candidates)
    {
        const int distance = edit_distance(name, candidate);
        if (best_distance < 0 || distance < best_distance)
        {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

}  // namespace plimsoll
