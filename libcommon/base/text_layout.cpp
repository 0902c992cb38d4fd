#include "base/text_layout.hpp"

#include <sstream>

namespace plimsoll
{

std::string wrap_text(const std::string& text, std::size_t indent, std::size_t width)
{
    std::istringstream words(text);
    std::string result;
    std::string line;
    std::string word;
    const auto flush = [&]
    {
        if (!line.empty()) { result += std::string(indent, ' ') + line + "\n"; }
        line.clear();
    };
    while (words >> word)
    {
        if (!line.empty() && indent + line.size() + 1 + word.size() > width) { flush(); }
        line += (line.empty() ? "" : " ") + word;
    }
    flush();
    return result;
}

std::string two_columns(const std::string& left, const std::string& text, std::size_t column, std::size_t width)
{
    const std::string head = "  " + left;
    std::string body = wrap_text(text, column, width);
    if (body.empty()) { return head + "\n"; }
    if (head.size() + 2 > column) { return head + "\n" + body; }
    return head + body.substr(head.size());
}

}  // namespace plimsoll
