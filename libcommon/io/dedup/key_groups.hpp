#pragma once
/// Which items share a key, for any number of keys in a bounded memory: keys that do not fit go to files without a name, each
/// with a share of the keys, and are looked at one file after the other.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/dedup/minhash.hpp"

namespace plimsoll
{

/// One thread. Memory: at most what was allowed, whatever the keys.
class KeyGroups
{
  public:
    /// `directory` holds the files; `num_keys` is the most that will be added.
    /// @throws ConfigError when `memory_bytes` is too little, naming what is needed
    KeyGroups(std::string directory, std::int64_t num_keys, std::int64_t memory_bytes);
    ~KeyGroups();
    KeyGroups(const KeyGroups&) = delete;
    KeyGroups& operator=(const KeyGroups&) = delete;

    /// Items come in any order that increases. @throws IoError
    void add(const DedupKey& key, std::int64_t item);
    /// Calls found(first, item) for each item whose key an earlier one, the first, had. Once, after the last add().
    void for_each(const std::function<void(std::int64_t first, std::int64_t item)>& found);
    std::int64_t num_files() const { return static_cast<std::int64_t>(parts_.size()); }

    /// Least memory for so many keys.
    static std::int64_t least_memory(std::int64_t num_keys);

  private:
    struct Part;
    std::vector<std::unique_ptr<Part>> parts_;
    int shift_ = 0;
};

/// Clusters of items; the smallest item of each is its root (union-find with path halving). Memory: 8 bytes for each.
class Clusters
{
  public:
    explicit Clusters(std::int64_t num);

    void join(std::int64_t a, std::int64_t b);
    std::int64_t root(std::int64_t item);

  private:
    std::vector<std::int64_t> parents_;
};

}  // namespace plimsoll
