#include "io/document_encoder.hpp"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.hpp"
#include "io/record_format.hpp"

namespace plimsoll
{

void EncodedDocuments::clear()
{
    ids.clear();
    mask.clear();
    entries.clear();
}

std::uint64_t content_hash(const Document& document)
{
    if (!document.ids.empty()) { return XXH3_64bits(document.ids.data(), document.ids.size() * sizeof(std::uint32_t)); }
    if (document.parts.empty()) { return XXH3_64bits(document.text.data(), document.text.size()); }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (const DocumentPart& part : document.parts)
    {
        const std::uint64_t head[] = {static_cast<std::uint64_t>(part.kind), part.text.size()};
        XXH3_64bits_update(&state, head, sizeof head);
        XXH3_64bits_update(&state, part.text.data(), part.text.size());
    }
    return XXH3_64bits_digest(&state);
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, LossMask loss_mask)
    : tokenizer_(tokenizer),
      with_mask_(loss_mask == LossMask::wanted),
      encoder_(tokenizer.make_encoder())
{
}

EncodedAs DocumentEncoder::encode(const Document& document, EncodedDocuments& out)
{
    const std::size_t begin = out.ids.size();
    EncodedDocuments::Entry entry;
    const auto take_back = [&]
    {
        out.ids.resize(begin);
        out.mask.resize(with_mask_ ? begin : 0);
    };
    try
    {
        const EncodedAs result = append(document, out, entry);
        if (result != EncodedAs::document) { take_back(); }
        else { out.entries.push_back(entry); }
        return result;
    }
    catch (...)
    {
        take_back();
        throw;
    }
}

EncodedAs DocumentEncoder::append(const Document& document, EncodedDocuments& out, EncodedDocuments::Entry& entry)
{
    const std::size_t begin = out.ids.size();
    if (!document.ids.empty()) { append_ids(document, out); }
    else if (document.parts.empty()) { append_text(document.text, 1, out); }
    append_parts(document.parts, out);
    if (out.ids.size() == begin) { return EncodedAs::empty; }
    if (with_mask_ &&
        std::find(out.mask.begin() + static_cast<std::ptrdiff_t>(begin), out.mask.end(), 1) == out.mask.end())
    {
        return EncodedAs::unlabelled;
    }
    append_end(out);
    entry.end = static_cast<std::int64_t>(out.ids.size());
    entry.text_bytes = text_bytes_of(document);
    entry.hash = content_hash(document);
    return EncodedAs::document;
}

void DocumentEncoder::append_text(std::string_view text, std::uint8_t counts, EncodedDocuments& out)
{
    // Growing by and by would hold the ids of a long document twice; memory that is not touched costs nothing.
    constexpr std::size_t is_long = 1 << 20;
    if (text.size() > is_long) { out.ids.reserve(out.ids.size() + text.size() + 1); }
    encoder_->encode(text, out.ids);
    if (with_mask_) { out.mask.resize(out.ids.size(), counts); }
}

void DocumentEncoder::append_parts(const std::vector<DocumentPart>& parts, EncodedDocuments& out)
{
    for (std::size_t at = 0; at < parts.size();)
    {
        std::size_t end = at;
        while (end < parts.size() && parts[end].kind == DocumentPart::Kind::text) { ++end; }
        if (end > at + 1)
        {
            encode_joined(tokenizer_, *encoder_, parts.data() + at, end - at, out.ids,
                          with_mask_ ? &out.mask : nullptr);
        }
        else if (end > at) { append_text(parts[at].text, parts[at].trainable ? 1 : 0, out); }
        if (end < parts.size()) { append_special(parts[end].text, parts[end].trainable ? 1 : 0, out); }
        at = end + 1;
    }
}

void DocumentEncoder::append_special(std::string_view content, std::uint8_t counts, EncodedDocuments& out) const
{
    const auto id = tokenizer_.special_id(content);
    VALIDATE(id.has_value(), FormatError, "tokenizer '{}' has no special token '{}'", tokenizer_.name(), content);
    out.ids.push_back(*id);
    if (with_mask_) { out.mask.push_back(counts); }
}

void DocumentEncoder::append_ids(const Document& document, EncodedDocuments& out) const
{
    const auto wrong = std::find_if(document.ids.begin(), document.ids.end(),
                                    [&](std::uint32_t id) { return id >= tokenizer_.vocab(); });
    VALIDATE(wrong == document.ids.end(), FormatError, "token id {} at position {} is not below the vocabulary of {}",
             *wrong, wrong - document.ids.begin(), tokenizer_.vocab());
    VALIDATE(document.mask.empty() || document.mask.size() == document.ids.size(), FormatError,
             "{} labels for {} token ids", document.mask.size(), document.ids.size());
    out.ids.insert(out.ids.end(), document.ids.begin(), document.ids.end());
    if (!with_mask_) { return; }
    if (document.mask.empty()) { out.mask.resize(out.ids.size(), 1); }
    else { out.mask.insert(out.mask.end(), document.mask.begin(), document.mask.end()); }
}

void DocumentEncoder::append_end(EncodedDocuments& out) const
{
    // Ready ids may bring it, a template never does twice.
    if (out.ids.back() == tokenizer_.eod()) { return; }
    out.ids.push_back(tokenizer_.eod());
    if (with_mask_) { out.mask.push_back(out.mask.back()); }
}

std::int64_t DocumentEncoder::text_bytes_of(const Document& document) const
{
    if (!document.ids.empty())
    {
        return static_cast<std::int64_t>(
            tokenizer_.decode(document.ids.data(), static_cast<std::int64_t>(document.ids.size())).size());
    }
    auto bytes = static_cast<std::int64_t>(document.text.size());
    for (const DocumentPart& part : document.parts)
    {
        if (part.kind == DocumentPart::Kind::text) { bytes += static_cast<std::int64_t>(part.text.size()); }
    }
    return bytes;
}

}  // namespace plimsoll
