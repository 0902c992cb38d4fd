#include "io/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

namespace
{

constexpr std::uint64_t empty_key = ~0ULL;

std::uint64_t slot_of(std::uint64_t key) { return (key * 0x9E3779B97F4A7C15U) >> 20; }

bool is_word(std::uint32_t c) { return (UnicodeTables::get().properties(c) & property_word) != 0; }

bool is_blank(std::uint32_t c) { return (1U << UnicodeTables::get().char_class(c) & space_set) != 0; }

bool is_single_word(std::string_view text, const char* begin, const char* end)
{
    const bool joins_left = begin > text.data() && is_word(decode_utf8(previous_utf8(begin)).value);
    const bool joins_right = end < text.data() + text.size() && is_word(decode_utf8(end).value);
    return !joins_left && !joins_right;
}

const char* skip_blank_left(const char* begin, const char* at)
{
    while (at > begin)
    {
        const char* previous = previous_utf8(at);
        if (!is_blank(decode_utf8(previous).value)) { break; }
        at = previous;
    }
    return at;
}

const char* skip_blank_right(const char* at, const char* end)
{
    while (at < end)
    {
        const CodePoint c = decode_utf8(at);
        if (!is_blank(c.value)) { break; }
        at += c.bytes;
    }
    return at;
}

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens))
{
    tokens_.erase(std::remove_if(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.content.empty(); }),
                  tokens_.end());
    std::size_t bytes = 1;
    for (const AddedToken& token : tokens_) { bytes += token.content.size(); }
    std::uint64_t slots = 16;
    while (slots < 2 * bytes) { slots *= 2; }
    mask_ = slots - 1;
    keys_.assign(slots, empty_key);
    children_.assign(slots, 0);
    token_of_.push_back(none);
    for (std::uint32_t i = 0; i < tokens_.size(); ++i)
    {
        std::uint32_t node = 0;
        for (const char byte : tokens_[i].content) { node = add_child(node, static_cast<unsigned char>(byte)); }
        token_of_[node] = i;
    }
    int num_first = 0;
    for (int byte = 0; byte < 256; ++byte)
    {
        roots_[static_cast<std::size_t>(byte)] = child(0, static_cast<unsigned char>(byte));
        if (roots_[static_cast<std::size_t>(byte)] == 0) { continue; }
        ++num_first;
        only_first_ = byte;
    }
    if (num_first != 1) { only_first_ = -1; }
}

// 0, the root, where there is none.
std::uint32_t AddedTokenMatcher::child(std::uint32_t node, unsigned char byte) const
{
    const std::uint64_t key = static_cast<std::uint64_t>(node) << 8 | byte;
    for (std::uint64_t slot = slot_of(key) & mask_;; slot = (slot + 1) & mask_)
    {
        if (keys_[slot] == key) { return children_[slot]; }
        if (keys_[slot] == empty_key) { return 0; }
    }
}

std::uint32_t AddedTokenMatcher::add_child(std::uint32_t node, unsigned char byte)
{
    const std::uint32_t known = child(node, byte);
    if (known != 0) { return known; }
    const std::uint64_t key = static_cast<std::uint64_t>(node) << 8 | byte;
    std::uint64_t slot = slot_of(key) & mask_;
    while (keys_[slot] != empty_key) { slot = (slot + 1) & mask_; }
    keys_[slot] = key;
    children_[slot] = static_cast<std::uint32_t>(token_of_.size());
    token_of_.push_back(none);
    return children_[slot];
}

const char* AddedTokenMatcher::find_first_byte(const char* from, const char* end) const
{
    if (only_first_ >= 0)
    {
        const void* found = std::memchr(from, only_first_, static_cast<std::size_t>(end - from));
        return found == nullptr ? end : static_cast<const char*>(found);
    }
    while (from < end && roots_[static_cast<unsigned char>(*from)] == 0) { ++from; }
    return from;
}

bool AddedTokenMatcher::find(const char* from, const char* end, Match& match) const
{
    for (;; ++from)
    {
        from = find_first_byte(from, end);
        if (from == end) { return false; }
        std::uint32_t node = roots_[static_cast<unsigned char>(*from)];
        match = {from, 0, none};
        for (const char* at = from + 1; node != 0; ++at)
        {
            if (token_of_[node] != none) { match = {from, static_cast<std::size_t>(at - from), token_of_[node]}; }
            if (at == end) { break; }
            node = child(node, static_cast<unsigned char>(*at));
        }
        if (match.token != none) { return true; }
    }
}

std::int64_t AddedTokenMatcher::split(std::string_view text, SpecialInText special_in_text,
                                      std::vector<AddedPart>& parts) const
{
    std::int64_t num_special = 0;
    const char* const end = text.data() + text.size();
    const char* rest = text.data();  // behind the last part
    Match match{};
    const char* from = tokens_.empty() ? end : rest;
    for (; from < end && find(from, end, match); from = match.begin + match.bytes)
    {
        const AddedToken& token = tokens_[match.token];
        const char* begin = match.begin;
        const char* stop = begin + match.bytes;
        num_special += token.special ? 1 : 0;
        if (token.special && special_in_text == SpecialInText::text) { continue; }
        if (token.single_word && !is_single_word(text, begin, stop)) { continue; }
        VALIDATE(!token.special || special_in_text != SpecialInText::error, FormatError,
                 "the text of special token '{}' stands in the document", token.content);
        if (token.lstrip) { begin = std::max(skip_blank_left(text.data(), begin), rest); }
        if (token.rstrip) { stop = skip_blank_right(stop, end); }
        if (rest < begin) { parts.push_back({between(rest, begin)}); }
        // A token may stand inside the blank that the rstrip of the one before took: HF gives both, unless nothing is left of it.
        if (begin < stop) { parts.push_back({between(begin, stop), static_cast<std::int64_t>(token.id)}); }
        rest = stop;
    }
    if (rest < end) { parts.push_back({between(rest, end)}); }
    return num_special;
}

}  // namespace plimsoll
