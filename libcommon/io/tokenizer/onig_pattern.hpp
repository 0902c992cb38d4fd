#pragma once
/// Patterns of Hugging Face's tokenizers, which Oniguruma reads, for PCRE2.

#include <string>

namespace plimsoll
{

/// The same pattern for PCRE2, of the constructs that mean one thing to both engines: characters, `.`, classes of characters and
/// ranges, `\s` `\n` `\r` `\t`, `^` `$` `\A` `\z`, groups, alternatives and quantifiers. \s is written out, so that no library's
/// Unicode version has a say. @throws FormatError that names the pattern and the construct for everything else
std::string pcre_of_oniguruma(const std::string& pattern);

}  // namespace plimsoll
