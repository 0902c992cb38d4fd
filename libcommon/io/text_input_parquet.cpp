#include "io/text_input_parquet.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "io/text_input_blocks.hpp"
#include "mem/plugin.hpp"

namespace plimsoll
{

namespace
{

constexpr const char* parquet_plugin_file = "libplimsoll_parquet.so";

const ParquetPluginTable& load_parquet_plugin()
{
    const std::string folder = core_library_folder();
    const std::string path = (std::filesystem::path(folder) / parquet_plugin_file).string();
    VALIDATE(std::filesystem::exists(path), ConfigError,
             "cannot read Parquet ({} is not in '{}': built without Arrow). build with -DWITH_PARQUET=ON",
             parquet_plugin_file, folder);
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
    {
        const char* reason = ::dlerror();
        throw ConfigError(fmt::format("cannot read Parquet ({} does not load: {})", parquet_plugin_file,
                                      reason != nullptr ? reason : "no reason given"));
    }
    using Entry = const ParquetPluginTable* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, parquet_plugin_entry));
    VALIDATE(entry != nullptr && entry()->abi == parquet_plugin_abi, ConfigError,
             "cannot read Parquet ({} in '{}' is of another version). install both from one build", parquet_plugin_file,
             folder);
    return *entry();
}

/// Loaded with the first file, and once.
const ParquetPluginTable& parquet_plugin()
{
    static const ParquetPluginTable& table = load_parquet_plugin();
    return table;
}

}  // namespace

ParquetInput::ParquetInput(const std::string& path, const std::string& column) : plugin_(&parquet_plugin()), path_(path)
{
    char error[512] = "";
    handle_ = plugin_->open(path.c_str(), column.c_str(), error, sizeof error);
    VALIDATE(handle_ != nullptr, FormatError, "{}: {}", path, error);
}

ParquetInput::~ParquetInput() { plugin_->close(handle_); }

std::int64_t ParquetInput::num_rows() const { return plugin_->num_rows(handle_); }

void ParquetInput::seek(std::int64_t row)
{
    char error[512] = "";
    num_pending_ = 0;
    VALIDATE(plugin_->seek(handle_, row, error, sizeof error), FormatError, "{}: damaged parquet data ({})", path_,
             error);
}

bool ParquetInput::next(std::int64_t bytes, std::int64_t max_row_bytes, ByteBuffer& data, std::int64_t& size,
                        std::vector<ParquetRow>& rows)
{
    while (size < bytes && static_cast<std::int64_t>(rows.size()) * 64 < bytes && refill())
    {
        // What does not fit any more waits in the page: a thousand rows of one dictionary may be a thousand long strings.
        while (num_pending_ > 0 && size < bytes)
        {
            take(*pending_++, max_row_bytes, data, size, rows);
            --num_pending_;
        }
    }
    if (rows.empty() && damage_) { throw DamagedStream(*damage_); }
    if (!rows.empty()) { data.reserve(size + TextBlock::padding); }
    return !rows.empty();
}

bool ParquetInput::refill()
{
    if (num_pending_ > 0) { return true; }
    if (damage_) { return false; }
    char error[512] = "";
    num_pending_ = plugin_->next(handle_, &pending_, error, sizeof error);
    if (num_pending_ < 0)
    {
        num_pending_ = 0;
        damage_ = fmt::format("damaged parquet data ({})", error);
    }
    return num_pending_ > 0;
}

void ParquetInput::take(const ParquetString& string, std::int64_t max_row_bytes, ByteBuffer& data, std::int64_t& size,
                        std::vector<ParquetRow>& rows)
{
    ParquetRow row;
    row.begin = size;
    row.bytes = string.bytes;
    if (string.data == nullptr) { row.kind = ParquetRow::Kind::null; }
    else if (row.bytes > max_row_bytes) { row.kind = ParquetRow::Kind::too_long; }
    else
    {
        const std::int64_t wanted = size + row.bytes + TextBlock::padding;
        if (wanted > data.capacity()) { data.reserve(std::max(wanted, data.capacity() + data.capacity() / 2)); }
        std::memcpy(data.data() + size, string.data, static_cast<std::size_t>(row.bytes));
        size += row.bytes;
    }
    rows.push_back(row);
}

}  // namespace plimsoll
