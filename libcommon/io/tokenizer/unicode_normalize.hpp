#pragma once
/// Normal forms of Unicode (UAX 15) as Hugging Face's tokenizers computes them: decompositions and combining classes of
/// Unicode 9.0, later characters are left alone. Real text hardly ever shows a difference to a later version: 311
/// characters, listed in scripts/normalize_tables.py.
///
/// Linear in the text, n log n in a run of combining marks. Pure; any thread may call. Ill-formed UTF-8 passes through.

#include <string>
#include <string_view>

namespace plimsoll
{

enum class NormalForm
{
    nfc,
    nfd,
    nfkc,
    nfkd,
};

/// Version of the tables, for fingerprints: "9.0.0".
std::string_view normalization_unicode_version();

/// Appends the normal form of `text` to `out`.
void append_normalized(std::string_view text, NormalForm form, std::string& out);

/// `text` itself where every character of it is inert in that form (nearly all text: one pass, no memory); else `buffer`,
/// overwritten with the normal form.
std::string_view normalized(std::string_view text, NormalForm form, std::string& buffer);

}  // namespace plimsoll
