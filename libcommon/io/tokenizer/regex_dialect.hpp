#pragma once
/// What PCRE2 and Oniguruma (the engine of HF's tokenizers, in its Ruby-like syntax) read differently.

#include <string>
#include <string_view>

namespace plimsoll
{

/// The first construct of a pattern for Oniguruma that PCRE2 would read as another thing, or may: "\w", "{2}+", "&&"; empty when both mean
/// the same. Only what is known to be the same passes. Differences of Unicode versions are not looked at.
std::string foreign_construct(std::string_view pattern);

}  // namespace plimsoll
