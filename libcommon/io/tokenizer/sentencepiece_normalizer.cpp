#include "io/tokenizer/sentencepiece_normalizer.hpp"

#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

SentencepieceNormalizer::SentencepieceNormalizer(const SentencepieceRules& rules, const DoubleArray& user_defined)
    : rules_(rules),
      user_defined_(user_defined),
      space_(rules.escape_whitespaces ? "\xE2\x96\x81" : " ")
{
    for (unsigned byte = 0; byte < 0x80; ++byte)
    {
        const auto c = static_cast<unsigned char>(byte);
        const bool starts_piece =
            !user_defined.empty() && user_defined.step(DoubleArray::root, c) != DoubleArray::nowhere;
        plain_[byte] = !starts_piece && !rules.charsmap.touches_ascii(c);
    }
    plain_space_ = plain_[' '];
    plain_[' '] = false;
}

SentencepieceNormalizer::Prefix SentencepieceNormalizer::prefix(std::string_view text, std::size_t position) const
{
    if (plain_space_ && text[position] == ' ' &&
        (position + 1 == text.size() || static_cast<unsigned char>(text[position + 1]) < 0x80))
    {
        return {1, " "};
    }
    const auto user = user_defined_.longest(text, position);
    if (user.length != 0) { return {user.length, text.substr(position, user.length)}; }
    const Charsmap::Match rule = rules_.charsmap.longest(text, position);
    if (rule.length != 0) { return {rule.length, rule.replacement}; }
    const Utf8Step step = utf8_step(text, position);
    if (!step.valid) { return {1, "\xEF\xBF\xBD"}; }
    return {step.bytes, text.substr(position, step.bytes)};
}

std::size_t SentencepieceNormalizer::skip_leading_spaces(std::string_view text) const
{
    std::size_t position = 0;
    while (position < text.size())
    {
        const Prefix p = prefix(text, position);
        if (p.text != " ") { break; }
        position += p.consumed;
    }
    return position;
}

void SentencepieceNormalizer::append_escaped(std::string_view text, std::string& out) const
{
    for (const char c : text)
    {
        if (c == ' ') { out.append(space_); }
        else { out.push_back(c); }
    }
}

void SentencepieceNormalizer::remove_trailing_spaces(std::string& out) const
{
    while (out.size() >= space_.size() && out.compare(out.size() - space_.size(), space_.size(), space_) == 0)
    {
        out.resize(out.size() - space_.size());
    }
}

void SentencepieceNormalizer::normalize(std::string_view text, std::string& out) const
{
    out.clear();
    std::size_t position = rules_.remove_extra_whitespaces ? skip_leading_spaces(text) : 0;
    if (position >= text.size()) { return; }
    out.reserve(text.size() - position + text.size() / 2 + 16);
    if (rules_.add_dummy_prefix && !rules_.whitespace_as_suffix) { out.append(space_); }
    bool after_space = rules_.remove_extra_whitespaces;
    while (position < text.size())
    {
        const std::size_t start = position;
        while (position < text.size() && plain_[static_cast<unsigned char>(text[position])]) { ++position; }
        // What follows may belong to the last one: A and a combining mark.
        if (position > start && position < text.size() && static_cast<unsigned char>(text[position]) >= 0x80)
        {
            --position;
        }
        if (position > start)
        {
            out.append(text, start, position - start);
            after_space = false;
            if (position == text.size()) { break; }
        }
        Prefix p = prefix(text, position);
        position += p.consumed;
        while (after_space && !p.text.empty() && p.text.front() == ' ') { p.text.remove_prefix(1); }
        if (!p.text.empty())
        {
            append_escaped(p.text, out);
            after_space = rules_.remove_extra_whitespaces && p.text.back() == ' ';
        }
    }
    if (rules_.remove_extra_whitespaces) { remove_trailing_spaces(out); }
    if (rules_.add_dummy_prefix && rules_.whitespace_as_suffix) { out.append(space_); }
}

}  // namespace plimsoll
