#pragma once
/// Patterns that no scanner knows: PCRE2, compiled with Unicode properties, with bounds on work and memory.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Library and Unicode version, which decide what such patterns match.
std::string regex_version();

/// A compiled pattern. Immutable, shared by threads.
class RegexPattern
{
  public:
    /// @throws FormatError "pattern '...' cannot be used (reason)". `is_literal`: the text itself, no regex.
    RegexPattern(const std::string& pattern, bool is_literal);
    ~RegexPattern();
    /// Whether there is a text in which it matches nothing at some place.
    bool matches_empty() const;
    RegexPattern(const RegexPattern&) = delete;
    RegexPattern& operator=(const RegexPattern&) = delete;

  private:
    friend class RegexMatcher;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// One thread's stack and match data.
class RegexMatcher
{
  public:
    explicit RegexMatcher(const RegexPattern& pattern);
    ~RegexMatcher();
    RegexMatcher(RegexMatcher&& other) noexcept;
    RegexMatcher& operator=(const RegexMatcher&) = delete;

    struct Span
    {
        std::size_t begin;
        std::size_t end;
        bool is_match;
    };
    /// Matches and what lies between them, in order; together all of `text`. Empty matches are left out.
    /// @throws FormatError where the pattern needs more than its bounds on this text
    void split(std::string_view text, std::vector<Span>& spans);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
