#pragma once
/// The table of a training run on stderr.
///
///       step    loss     grad     lr        tok/s    peak MiB   left
///         30   3.4127   0.871   5.9e-04     4,012    111.6      0:01:04
///              val-loss 3.0021   ppl 20.13   1.93 bits/byte   [eval.NAME]

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/progress.hpp"

namespace plimsoll
{

struct TrainingRow
{
    std::int64_t step = 0;
    double loss = 0;  ///< nats per token
    double grad_norm = 0;
    double lr = 0;
    double tokens_per_second = 0;
    std::int64_t peak_bytes = 0;  ///< allocator peak of the rank with the largest
    double seconds_left = 0;      ///< < 0: unknown
};

struct ValidationRow
{
    std::string set;           ///< of [eval.NAME]; empty for [eval]
    double loss = 0;           ///< nats per token
    double bits_per_byte = 0;  ///< <= 0: the shards do not know their text bytes
};

/// Prints the header before the first row and again every 50; in a log (no terminal) each row starts with the time of
/// day. Never a carriage return or colour. Not thread-safe.
class TrainingTable
{
  public:
    /// stream nullptr: says nothing (all ranks of a job but the first).
    TrainingTable(std::FILE* stream, StreamKind kind) : stream_(stream), kind_(kind) {}

    void row(const TrainingRow& row);
    void validation(const ValidationRow& row);

    static std::string header();
    static std::string format(const TrainingRow& row);
    static std::string format(const ValidationRow& row);

  private:
    void print(const std::string& line);

    std::FILE* stream_;
    StreamKind kind_;
    int rows_since_header_ = -1;
};

}  // namespace plimsoll
