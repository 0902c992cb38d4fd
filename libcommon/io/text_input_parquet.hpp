#pragma once
/// The string column of a Parquet file, read through a plug-in that holds Arrow (docs/adr/0030): who reads no Parquet does
/// not load it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/parquet_plugin.hpp"
#include "io/text_input_stream.hpp"

namespace plimsoll
{

/// One row: its text is data[begin, begin + bytes).
struct ParquetRow
{
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
    enum class Kind
    {
        text,
        null,     ///< the column has nothing here
        too_long  ///< longer than allowed: not copied
    };
    Kind kind = Kind::text;
};

/// Of one thread; one row group and one batch of it at a time.
class ParquetInput
{
  public:
    /// `column`: a name, or a path "a.b" into struct columns. @throws FormatError, ConfigError when the plug-in is missing
    ParquetInput(const std::string& path, const std::string& column);
    ~ParquetInput();
    ParquetInput(const ParquetInput&) = delete;
    ParquetInput& operator=(const ParquetInput&) = delete;

    std::int64_t num_rows() const;
    /// The next one is `row`.
    void seek(std::int64_t row);
    /// Appends rows to empty `data` and `rows` until they hold about `bytes`; false at the end.
    /// @throws DamagedStream "damaged parquet data (...)", after all rows before were given
    bool next(std::int64_t bytes, std::int64_t max_row_bytes, ByteBuffer& data, std::int64_t& size,
              std::vector<ParquetRow>& rows);

  private:
    bool refill();
    static void take(const ParquetString& string, std::int64_t max_row_bytes, ByteBuffer& data, std::int64_t& size,
                     std::vector<ParquetRow>& rows);

    const ParquetPluginTable* plugin_ = nullptr;
    std::string path_;
    void* handle_ = nullptr;
    const ParquetString* pending_ = nullptr;  ///< rows of the plug-in's batch that were not taken yet
    std::int64_t num_pending_ = 0;
    std::optional<std::string> damage_;
};

}  // namespace plimsoll
