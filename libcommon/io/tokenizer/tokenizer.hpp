#pragma once
/// Text to token ids. One interface for all kinds; this version builds `bytes`.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

class Tokenizer
{
  public:
    virtual ~Tokenizer() = default;
    virtual std::string name() const = 0;
    /// Number of ids, specials included.
    virtual std::int64_t vocab() const = 0;
    virtual std::uint32_t eod() const = 0;
    /// sha256 over everything that decides the ids.
    virtual std::string fingerprint() const = 0;
    /// Appends the ids of `text` (one document, without EOD). Thread-safe.
    virtual void encode(std::string_view text, std::vector<std::uint32_t>& ids) const = 0;
    /// Bytes of the ids; specials as nothing.
    virtual std::string decode(const std::uint32_t* ids, std::int64_t num) const = 0;
};

/// "bytes": id = byte, 256 = end of document. @throws ConfigError for kinds that are not available yet or not known.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind);

}  // namespace plimsoll
