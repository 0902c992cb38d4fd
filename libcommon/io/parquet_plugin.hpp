#pragma once
/// What libplimsoll_parquet.so offers: a table of C types, so that one of any version can be refused.

#include <cstdint>

namespace plimsoll
{

constexpr std::uint32_t parquet_plugin_abi = 1;
constexpr const char* parquet_plugin_entry = "plimsoll_parquet_plugin";

/// One string of a batch; `data` holds until the next batch. null: no value.
struct ParquetString
{
    const char* data;
    std::int64_t bytes;
};

struct ParquetPluginTable
{
    std::uint32_t abi;
    const char* arrow_version;
    /// nullptr: failed, and `error` (at most `error_bytes` with its end) says why.
    void* (*open)(const char* path, const char* column, char* error, std::int64_t error_bytes);
    void (*close)(void* file);
    std::int64_t (*num_rows)(const void* file);
    /// The next batch begins with this row.
    bool (*seek)(void* file, std::int64_t row, char* error, std::int64_t error_bytes);
    /// Reads on: *strings points to the returned number of rows, 0 at the end; -1: failed.
    std::int64_t (*next)(void* file, const ParquetString** strings, char* error, std::int64_t error_bytes);
};

}  // namespace plimsoll
