#include "io/tokenizer/onig_pattern.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view onig_spaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

bool is_onig_escapable(char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }

/// A category: \p{Lu}. Scripts are PCRE2's script extensions, and other names are not known to both.
bool is_category(std::string_view name)
{
    return !name.empty() && name.size() <= 2 && std::string_view("CLMNPSZ").find(name[0]) != std::string_view::npos &&
           (name.size() == 1 || std::islower(static_cast<unsigned char>(name[1])) != 0);
}

class OnigReader
{
  public:
    explicit OnigReader(std::string_view pattern) : pattern_(pattern) {}

    std::string read()
    {
        while (more()) { element(); }
        refuse_foreign_folding();
        return std::move(out_);
    }

  private:
    bool more() const { return at_ < pattern_.size(); }
    std::string_view rest() const { return pattern_.substr(at_); }
    [[noreturn]] void refuse(std::string_view construct) const
    {
        throw FormatError(fmt::format("pattern '{}' is not supported ('{}' means another thing to each engine)",
                                      pattern_, construct));
    }
    void take(std::size_t bytes)
    {
        out_ += rest().substr(0, bytes);
        at_ += bytes;
    }

    void element()
    {
        switch (pattern_[at_])
        {
            case '\\': return escape();
            case '[': return char_class();
            case '(': return group();
            case '{': return brace();
            case '*':
            case '+':
            case '?': return quantifier();
            case '^':
                ++at_;
                out_ += R"((?:\A|(?<=\n)(?!\z)))";
                return;
            // At the end Oniguruma does not see an empty line behind a line end.
            case '$':
                ++at_;
                out_ += R"((?:(?=\n)|(?<!\n)\z|\A\z))";
                return;
            default: take(1);
        }
    }

    /// Lazy or possessive ones too; another behind it means something else, or nothing.
    void quantifier()
    {
        take(1);
        if (more() && (rest()[0] == '?' || rest()[0] == '+')) { take(1); }
        if (more() && std::string_view("*+?").find(rest()[0]) != std::string_view::npos)
        {
            refuse(pattern_.substr(at_ - 1, 2));
        }
    }

    /// {n}, {n,}, {n,m} and their lazy forms where both have them; any other brace is a character.
    void brace()
    {
        const std::size_t end = rest().find_first_not_of("0123456789,", 1);
        if (end == std::string_view::npos || rest()[end] != '}' || end == 1)
        {
            out_ += "\\{";
            ++at_;
            return;
        }
        const std::string_view inside = rest().substr(1, end - 1);
        const std::size_t comma = inside.find(',');
        const char next = end + 1 < rest().size() ? rest()[end + 1] : '\0';
        const bool lazy = next == '?';
        if (comma == 0 || comma != inside.rfind(',') || next == '+' || next == '*' ||
            (lazy && comma == std::string_view::npos))
        {
            refuse(rest().substr(0, end + (next == '+' || next == '*' || lazy ? 2 : 1)));
        }
        take(end + (lazy ? 2 : 1));
    }

    void group()
    {
        if (rest().starts_with("(*")) { refuse("(*"); }
        if (!rest().starts_with("(?"))
        {
            out_ += "(?:";
            ++at_;
            return;
        }
        // For Oniguruma (?i) ends with its alternative's group, so it is the same at the start only.
        if (at_ == 0 && rest().starts_with("(?i)")) { return take(4); }
        for (const std::string_view same : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
        {
            if (rest().starts_with(same)) { return take(same.size()); }
        }
        refuse(rest().substr(0, 3));
    }

    std::string_view escape_text() const
    {
        const bool braced = rest().size() > 2 && rest()[2] == '{' && rest().find('}') != std::string_view::npos;
        return rest().substr(0, braced ? rest().find('}') + 1 : 2);
    }

    void escape()
    {
        const char letter = rest().size() > 1 ? rest()[1] : '\0';
        if (letter == 's' || letter == 'S')
        {
            at_ += 2;
            out_.append(letter == 's' ? "[" : "[^").append(onig_spaces).append("]");
        }
        else if (letter == 'A' || letter == 'z') { take(2); }
        else { common_escape(); }
    }

    /// Escapes that mean the same inside and outside of classes. Whether it stands for several characters.
    bool common_escape()
    {
        if (rest().size() < 2) { refuse("\\"); }
        const char letter = rest()[1];
        if (is_onig_escapable(letter) || std::string_view("nrtfae").find(letter) != std::string_view::npos)
        {
            take(2);
            return false;
        }
        const std::string_view text = escape_text();
        if (letter == 'x')
        {
            // \x80 and above is a byte to Oniguruma.
            const bool ascii = rest().size() > 3 && rest()[2] >= '0' && rest()[2] <= '7' &&
                               std::isxdigit(static_cast<unsigned char>(rest()[3])) != 0;
            if (text.size() == 2 && !ascii) { refuse(text); }
            take(text.size() == 2 ? 4 : text.size());
            return false;
        }
        const bool category =
            (letter == 'p' || letter == 'P') && text.size() > 4 && is_category(text.substr(3, text.size() - 4));
        if (letter != 'd' && letter != 'D' && !category) { refuse(text); }
        take(text.size());
        return true;
    }

    /// [...], where not-a-space among other things is an alternative of its own.
    void char_class()
    {
        const std::size_t begin = at_++;
        const bool negated = more() && rest()[0] == '^';
        if (negated) { ++at_; }
        std::string outer;
        outer.swap(out_);
        const bool not_space = class_members(begin);
        const std::string members = std::move(out_);
        out_ = std::move(outer);
        const std::string spaces(onig_spaces);
        if (!not_space) { out_ += (negated ? "[^" : "[") + members + "]"; }
        else if (members.empty()) { out_ += (negated ? "[" : "[^") + spaces + "]"; }
        else if (negated) { out_ += "(?:(?![" + members + "])[" + spaces + "])"; }
        else { out_ += "(?:[" + members + "]|[^" + spaces + "])"; }
    }

    /// Into out_ up to the closing bracket. Whether \S is among them.
    bool class_members(std::size_t begin)
    {
        bool not_space = false;
        bool after_several = true;  // where a '-' is a character
        for (bool first = true; more() && (first || rest()[0] != ']'); first = false)
        {
            const char c = rest()[0];
            if (c == '[') { refuse("[ inside []"); }
            if (rest().starts_with("&&")) { refuse("&&"); }
            const bool last = rest().size() > 1 && rest()[1] == ']';
            if (c == ']' || (c == '-' && (after_several || last)))
            {
                out_.append(1, '\\').append(1, c);
                ++at_;
                after_several = false;
            }
            else if (c == '-') { after_several = range_end(); }
            else if (c == '\\' && (rest().starts_with("\\s") || rest().starts_with("\\S")))
            {
                if (rest()[1] == 's') { out_ += onig_spaces; }
                else { not_space = true; }
                at_ += 2;
                after_several = true;
            }
            else if (c == '\\') { after_several = common_escape(); }
            else
            {
                take(1);
                after_several = false;
            }
        }
        if (!more()) { refuse(pattern_.substr(begin)); }
        ++at_;
        return not_space;
    }

    /// The '-' of a range and the character behind it; a '-' after that is a character.
    bool range_end()
    {
        const std::string_view end = rest().substr(1, 2);
        if (end.starts_with("[")) { refuse("[ inside []"); }
        if (end == "\\s" || end == "\\S" || end == "\\d" || end == "\\D" || end == "\\p" || end == "\\P")
        {
            refuse("-" + std::string(end));
        }
        take(1);
        if (more() && rest()[0] == '\\') { common_escape(); }
        else if (more()) { take(1); }
        // The rest of a character beyond ASCII.
        while (more() && (static_cast<unsigned char>(rest()[0]) & 0xC0U) == 0x80U) { take(1); }
        return true;
    }

    /// Oniguruma folds characters that are several letters in another case (\u00DF and SS, the ligatures); PCRE2 one by one.
    void refuse_foreign_folding() const
    {
        if (pattern_.find("(?i") == std::string_view::npos) { return; }
        std::string lower(pattern_);
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        for (const char* several : {"ss", "ff", "fi", "fl", "st"})
        {
            if (lower.find(several) != std::string::npos) { refuse(std::string("(?i with ") + several); }
        }
        const bool ascii =
            std::all_of(lower.begin(), lower.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
        if (!ascii) { refuse("(?i with letters beyond ASCII"); }
    }

    std::string_view pattern_;
    std::string out_;
    std::size_t at_ = 0;
};

}  // namespace

std::string pcre_of_oniguruma(std::string_view pattern) { return OnigReader(pattern).read(); }

}  // namespace plimsoll
