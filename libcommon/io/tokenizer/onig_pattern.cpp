#include "io/tokenizer/onig_pattern.hpp"

#include <string_view>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view onig_spaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

class OnigReader
{
  public:
    explicit OnigReader(const std::string& pattern) : pattern_(pattern) {}

    std::string read()
    {
        while (at_ < pattern_.size()) { element(); }
        return out_;
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const
    {
        throw FormatError(
            fmt::format("pattern '{}' is not supported ({} is not known to mean the same to both engines)", pattern_,
                        what));
    }
    bool more() const { return at_ < pattern_.size(); }
    static bool is_punct(char c)
    {
        const auto u = static_cast<unsigned char>(c);
        return u > 0x20 && u < 0x7F && !(u >= '0' && u <= '9') && !((u | 32U) >= 'a' && (u | 32U) <= 'z');
    }

    void element()
    {
        const char c = pattern_[at_++];
        switch (c)
        {
            case '\\': return escape();
            case '[': return char_class();
            // At the end Oniguruma does not see an empty line behind a line end.
            case '^': out_ += R"((?:\A|(?<=\n)(?!\z)))"; return;
            case '$': out_ += R"((?:(?=\n)|(?<!\n)\z|\A\z))"; return;
            case '(':
                if (more() && pattern_[at_] == '?')
                {
                    if (pattern_.compare(at_, 2, "?:") != 0) { refuse("'" + pattern_.substr(at_ - 1, 3) + "'"); }
                    at_ += 2;
                }
                out_ += "(?:";
                return;
            case '*':
            case '+':
            case '?': out_ += c; return quantifier_ends(true);
            case '{': return interval();
            default: out_ += c;
        }
    }

    void escape()
    {
        if (!more()) { refuse("a backslash at the end"); }
        const char c = pattern_[at_++];
        if (c == 's') { out_.append("[").append(onig_spaces).append("]"); }
        else if (c == 'S') { out_.append("[^").append(onig_spaces).append("]"); }
        else if (is_punct(c) || c == 'n' || c == 'r' || c == 't' || c == 'A' || c == 'z')
        {
            out_.append(1, '\\').append(1, c);
        }
        else if (c == ' ') { out_ += "\\ "; }
        else { refuse(std::string("'\\") + c + "'"); }
    }

    void quantifier_ends(bool may_be_lazy)
    {
        if (!more()) { return; }
        const char c = pattern_[at_];
        if (c == '?' && may_be_lazy)
        {
            out_ += c;
            ++at_;
        }
        if (more() && std::string_view("*+?{").find(pattern_[at_]) != std::string_view::npos)
        {
            refuse("a quantifier behind another");
        }
    }

    void interval()
    {
        const std::size_t close = pattern_.find('}', at_);
        const std::string inside = close == std::string::npos ? "" : pattern_.substr(at_, close - at_);
        if (inside.empty() || inside[0] == ',' || inside.find_first_not_of("0123456789,") != std::string::npos ||
            inside.find(',') != inside.rfind(','))
        {
            refuse("a '{' that is no {n}, {n,} or {n,m}");
        }
        out_.append("{").append(inside).append("}");
        at_ = close + 1;
        quantifier_ends(false);
    }

    void char_class()
    {
        out_ += '[';
        if (more() && pattern_[at_] == '^')
        {
            out_ += '^';
            ++at_;
        }
        bool first = true;
        for (; more() && pattern_[at_] != ']'; first = false)
        {
            const char c = pattern_[at_++];
            const bool edge = first || (more() && pattern_[at_] == ']');
            if (c == '[' || (c == '&' && more() && pattern_[at_] == '&'))
            {
                refuse(std::string("'") + c + "' in a class");
            }
            if (c == '-' && edge) { out_ += "\\-"; }
            else if (c != '\\') { out_ += c; }
            else { class_escape(); }
        }
        if (first || !more()) { refuse("an empty or open class"); }
        out_ += ']';
        ++at_;
    }

    void class_escape()
    {
        if (!more()) { refuse("a backslash at the end"); }
        const char c = pattern_[at_++];
        if (c == 's') { out_ += onig_spaces; }
        else if (is_punct(c) || c == 'n' || c == 'r' || c == 't') { out_.append(1, '\\').append(1, c); }
        else { refuse(std::string("'\\") + c + "' in a class"); }
    }

    const std::string& pattern_;
    std::string out_;
    std::size_t at_ = 0;
};

}  // namespace

std::string pcre_of_oniguruma(const std::string& pattern) { return OnigReader(pattern).read(); }

}  // namespace plimsoll
