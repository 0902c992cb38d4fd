#pragma once
/// Patterns of Hugging Face's tokenizers, which Oniguruma reads in its Ruby-like syntax, for PCRE2.

#include <string>
#include <string_view>

namespace plimsoll
{

/// The same pattern for PCRE2, with its options PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE and LF as the only line end. What both engines
/// read alike stays; \s, \S, ^ and $ are written out, so that neither a library's Unicode version nor its rule for the last line has a
/// say; groups do not capture. Otherwise only Unicode versions of \p{...} and \d may differ.
/// @throws FormatError that names the pattern and its first construct that means, or may mean, another thing to each engine
/// ("\w", "{2}+", "&&")
std::string pcre_of_oniguruma(std::string_view pattern);

}  // namespace plimsoll
