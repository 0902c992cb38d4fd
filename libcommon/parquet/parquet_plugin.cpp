// One string column of a Parquet file by Arrow's column readers, page by page: they give views into the page or its
// dictionary whatever Arrow type the column had, and say by definition levels which rows have no value.

#include <arrow/util/config.h>
#include <parquet/api/reader.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/parquet_plugin.hpp"

namespace
{

constexpr std::int64_t batch_rows = 1024;

class Column
{
  public:
    Column(const char* path, const std::string& name)
    {
        parquet::ReaderProperties properties = parquet::default_reader_properties();
        // Pages on demand; without it the whole column of a row group would be read first.
        properties.enable_buffered_stream();
        properties.set_buffer_size(1 << 20);
        file_ = parquet::ParquetFileReader::OpenFile(path, false, properties);
        column_ = find(name);
        levels_.resize(batch_rows);
        values_.resize(batch_rows);
        strings_.resize(batch_rows);
    }

    std::int64_t num_rows() const { return file_->metadata()->num_rows(); }

    void seek(std::int64_t row)
    {
        group_ = 0;
        reader_.reset();
        while (group_ < file_->metadata()->num_row_groups())
        {
            const std::int64_t rows = file_->metadata()->RowGroup(group_)->num_rows();
            if (row < rows) { break; }
            row -= rows;
            ++group_;
        }
        if (row > 0 && open_group()) { reader_->Skip(row); }
    }

    std::int64_t next(const plimsoll::ParquetString** strings)
    {
        while (reader_ == nullptr || !reader_->HasNext())
        {
            if (reader_ != nullptr) { ++group_; }
            reader_.reset();
            if (!open_group()) { return 0; }
        }
        const std::int16_t present = file_->metadata()->schema()->Column(column_)->max_definition_level();
        std::int64_t num_values = 0;
        const std::int64_t rows = reader_->ReadBatch(batch_rows, levels_.data(), nullptr, values_.data(), &num_values);
        const parquet::ByteArray* value = values_.data();
        for (std::int64_t i = 0; i < rows; ++i)
        {
            plimsoll::ParquetString& string = strings_[static_cast<std::size_t>(i)];
            string = {nullptr, 0};
            // A required column has no levels: all its rows are there.
            if (present > 0 && levels_[static_cast<std::size_t>(i)] < present) { continue; }
            string = {value->len > 0 ? reinterpret_cast<const char*>(value->ptr) : "",
                      static_cast<std::int64_t>(value->len)};
            ++value;
        }
        *strings = strings_.data();
        return rows;
    }

  private:
    int find(const std::string& name) const
    {
        const parquet::SchemaDescriptor& schema = *file_->metadata()->schema();
        std::string known;
        for (int i = 0; i < schema.num_columns(); ++i)
        {
            const parquet::ColumnDescriptor& column = *schema.Column(i);
            const std::string path = column.path()->ToDotString();
            if (path != name)
            {
                if (i < 20) { known += (known.empty() ? "" : " ") + path; }
                else if (i == 20) { known += " ..."; }
                continue;
            }
            if (column.physical_type() != parquet::Type::BYTE_ARRAY)
            {
                throw std::runtime_error("field '" + name + "' is " + type_name(column) + ", not a string");
            }
            if (column.max_repetition_level() > 0)
            {
                throw std::runtime_error("field '" + name + "' is inside a list, of which a row has any number");
            }
            return i;
        }
        throw std::runtime_error("no field '" + name + "' (columns: " + known + ")");
    }

    static std::string type_name(const parquet::ColumnDescriptor& column)
    {
        std::string name = parquet::TypeToString(column.physical_type());
        std::transform(name.begin(), name.end(), name.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        return name;
    }

    bool open_group()
    {
        while (group_ < file_->metadata()->num_row_groups() && file_->metadata()->RowGroup(group_)->num_rows() == 0)
        {
            ++group_;
        }
        if (group_ >= file_->metadata()->num_row_groups()) { return false; }
        reader_ = std::static_pointer_cast<parquet::ByteArrayReader>(file_->RowGroup(group_)->Column(column_));
        return true;
    }

    std::unique_ptr<parquet::ParquetFileReader> file_;
    int column_ = 0;
    int group_ = 0;
    std::shared_ptr<parquet::ByteArrayReader> reader_;
    std::vector<std::int16_t> levels_;
    std::vector<parquet::ByteArray> values_;
    std::vector<plimsoll::ParquetString> strings_;
};

template<class Result, class Body>
Result guarded(Result failed, char* error, std::int64_t error_bytes, Body&& body)
{
    try
    {
        return body();
    }
    catch (const std::exception& exception)
    {
        std::snprintf(error, static_cast<std::size_t>(error_bytes), "%s", exception.what());
        return failed;
    }
}

void* plugin_open(const char* path, const char* column, char* error, std::int64_t error_bytes)
{
    return guarded<void*>(nullptr, error, error_bytes, [&] { return static_cast<void*>(new Column(path, column)); });
}

void plugin_close(void* file) { delete static_cast<Column*>(file); }

std::int64_t plugin_num_rows(const void* file) { return static_cast<const Column*>(file)->num_rows(); }

bool plugin_seek(void* file, std::int64_t row, char* error, std::int64_t error_bytes)
{
    return guarded(false, error, error_bytes,
                   [&]
                   {
                       static_cast<Column*>(file)->seek(row);
                       return true;
                   });
}

std::int64_t plugin_next(void* file, const plimsoll::ParquetString** strings, char* error, std::int64_t error_bytes)
{
    return guarded<std::int64_t>(-1, error, error_bytes, [&] { return static_cast<Column*>(file)->next(strings); });
}

constexpr plimsoll::ParquetPluginTable table{plimsoll::parquet_plugin_abi,
                                             ARROW_VERSION_STRING,
                                             plugin_open,
                                             plugin_close,
                                             plugin_num_rows,
                                             plugin_seek,
                                             plugin_next};

}  // namespace

extern "C" __attribute__((visibility("default"))) const plimsoll::ParquetPluginTable* plimsoll_parquet_plugin()
{
    return &table;
}
