#include "io/token_formats/mds.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

using MdsJson = nlohmann::json;

constexpr std::int64_t mds_window_samples = 1 << 14;
constexpr std::int64_t mds_max_shard_bytes = 0xffffffffll;

struct MdsValueType
{
    const char* name;
    int code;  ///< in a sample whose encoding names no type
    int bytes;
};

constexpr MdsValueType mds_value_types[] = {{"uint8", 8, 1},   {"int8", 9, 1},   {"uint16", 16, 2}, {"int16", 17, 2},
                                            {"uint32", 32, 4}, {"int32", 33, 4}, {"uint64", 64, 8}, {"int64", 65, 8}};

const MdsValueType* value_type_of(int code)
{
    for (const MdsValueType& type : mds_value_types)
    {
        if (type.code == code) { return &type; }
    }
    return nullptr;
}

/// Columns that are neither bytes nor ndarray only need their size.
MdsColumn column_of(std::string name, std::string encoding, std::int64_t fixed_size)
{
    MdsColumn column;
    column.name = std::move(name);
    column.encoding = std::move(encoding);
    column.fixed_size = fixed_size;
    const std::string& text = column.encoding;
    column.is_array = text.compare(0, 7, "ndarray") == 0;
    if (!column.is_array || text.size() <= 8) { return column; }
    const std::size_t end = text.find(':', 8);
    column.has_shape = end != std::string::npos;
    const std::string type = text.substr(8, end == std::string::npos ? end : end - 8);
    column.value_code = -1;
    for (const MdsValueType& known : mds_value_types)
    {
        if (type == known.name) { column.value_code = known.code; }
    }
    return column;
}

MdsShard shard_of_row(const MdsJson& row, const std::string& directory)
{
    VALIDATE(row.at("format").get<std::string>() == "mds", FormatError, "shards in the format '{}' (mds is read)",
             row.at("format").get<std::string>());
    MdsShard shard;
    const std::string name = row.at("raw_data").at("basename").get<std::string>();
    VALIDATE(!name.empty() && name[0] != '/' && name.find("..") == std::string::npos, FormatError,
             "shard '{}' is not inside the directory", name);
    shard.path = directory + "/" + name;
    shard.bytes = row.at("raw_data").at("bytes").get<std::int64_t>();
    shard.samples = row.at("samples").get<std::int64_t>();
    const auto names = row.at("column_names").get<std::vector<std::string>>();
    const auto encodings = row.at("column_encodings").get<std::vector<std::string>>();
    const MdsJson& sizes = row.at("column_sizes");
    VALIDATE(encodings.size() == names.size() && sizes.size() == names.size() && shard.samples >= 0, FormatError,
             "{} columns, {} encodings, {} sizes, {} samples", names.size(), encodings.size(), sizes.size(),
             shard.samples);
    for (std::size_t i = 0; i < names.size(); ++i)
    {
        shard.columns.push_back(column_of(names[i], encodings[i], sizes[i].is_null() ? -1 : sizes[i].get<int>()));
    }
    VALIDATE(std::is_sorted(names.begin(), names.end()), FormatError, "the columns are not sorted by name");
    if (!path_exists(shard.path) && row.contains("zip_data") && !row.at("zip_data").is_null())
    {
        throw FormatError(fmt::format("'{}' is there compressed only ({}). decompress the shards first", name,
                                      row.at("compression").get<std::string>()));
    }
    return shard;
}

void check_shard_file(const MdsShard& shard)
{
    const std::int64_t bytes = file_size(shard.path);
    VALIDATE(bytes >= 0, FormatError, "{}: is missing (the index lists it)", shard.path);
    VALIDATE(bytes == shard.bytes && bytes <= mds_max_shard_bytes, FormatError,
             "{}: {} bytes, the index says {} (truncated file?)", shard.path, bytes, shard.bytes);
}

std::uint64_t unsigned_at(const char* bytes, int width)
{
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, static_cast<std::size_t>(width));
    return value;
}

}  // namespace

std::vector<MdsShard> read_mds_index(const std::string& directory)
{
    const std::string path = directory + "/index.json";
    std::vector<MdsShard> shards;
    with_context(path,
                 [&]
                 {
                     try
                     {
                         const MdsJson json = MdsJson::parse(read_text_file(path));
                         VALIDATE(json.at("version").get<int>() == 2, FormatError, "version {} (this version reads 2)",
                                  json.at("version").get<int>());
                         for (const MdsJson& row : json.at("shards"))
                         {
                             shards.push_back(shard_of_row(row, directory));
                         }
                     }
                     catch (const MdsJson::parse_error& error)
                     {
                         throw FormatError(fmt::format("not valid json (at byte {})", error.byte));
                     }
                     catch (const MdsJson::exception&)
                     {
                         throw FormatError("a field of MDS is missing or has the wrong type");
                     }
                 });
    for (const MdsShard& shard : shards) { check_shard_file(shard); }
    return shards;
}

MdsDocuments::MdsDocuments(const std::string& directory, MdsReadOptions options)
    : options_(std::move(options)),
      shards_(read_mds_index(directory))
{
    for (const MdsShard& shard : shards_)
    {
        total_bytes_ += shard.bytes;
        num_documents_ += shard.samples;
    }
    check_columns();
}

void MdsDocuments::check_columns()
{
    for (const MdsShard& shard : shards_)
    {
        const MdsColumn* tokens = nullptr;
        std::string names;
        for (const MdsColumn& column : shard.columns)
        {
            names += " " + column.name;
            if (column.name == options_.tokens_column) { tokens = &column; }
            if (column.name == "loss_mask") { has_loss_mask_ = true; }
        }
        VALIDATE(tokens != nullptr, FormatError, "{}: no column '{}' (columns:{}). name it with --column", shard.path,
                 options_.tokens_column, names);
        const bool bytes = tokens->encoding == "bytes";
        VALIDATE((tokens->is_array && tokens->value_code >= 0) || bytes, FormatError,
                 "{}: column '{}' is {}, no list of ids", shard.path, tokens->name, tokens->encoding);
        VALIDATE(!bytes || options_.token_bytes > 0, ConfigError,
                 "{}: column '{}' is bytes, which does not say how wide an id is. give --token-bytes 2, 4 or 8",
                 shard.path, tokens->name);
        if (encoding_.empty()) { encoding_ = tokens->encoding; }
    }
}

void MdsDocuments::open_shard()
{
    const MdsShard& shard = shards_[shard_];
    file_ = std::make_unique<File>(shard.path, File::Mode::read);
    std::uint32_t samples = 0;
    file_->read_at(&samples, 4, 0);
    VALIDATE(samples == shard.samples && 8 + 4ll * samples <= shard.bytes, FormatError,
             "{}: {} samples, the index says {}", shard.path, samples, shard.samples);
    sample_ = window_begin_ = 0;
    offsets_.clear();
}

void MdsDocuments::read_offsets()
{
    const MdsShard& shard = shards_[shard_];
    const std::int64_t num = std::min(mds_window_samples, shard.samples - sample_);
    offsets_.resize(static_cast<std::size_t>(num + 1));
    window_begin_ = sample_;
    file_->read_at(offsets_.data(), 4 * (num + 1), 4 + 4 * sample_);
    std::uint32_t previous = static_cast<std::uint32_t>(8 + 4 * shard.samples);
    for (const std::uint32_t offset : offsets_)
    {
        VALIDATE(offset >= previous && offset <= shard.bytes, FormatError,
                 "{}: a sample starts at byte {} after one at {} ({} bytes in all)", shard.path, offset, previous,
                 shard.bytes);
        previous = offset;
    }
    VALIDATE(sample_ + num < shard.samples || offsets_.back() == shard.bytes, FormatError,
             "{}: the last sample ends at byte {}, the file at {}", shard.path, offsets_.back(), shard.bytes);
}

namespace
{

/// Elements of a one-dimensional value: where they start, how many, how wide.
struct MdsElements
{
    const char* data = nullptr;
    std::int64_t num = 0;
    int width = 0;
};

/// Empty data when the bytes do not fit the encoding.
MdsElements elements_of(const MdsColumn& column, const char* data, std::int64_t bytes, int token_bytes)
{
    MdsElements elements;
    elements.width = token_bytes;
    if (column.is_array)
    {
        int code = column.value_code;
        if (code == 0)
        {
            if (bytes < 1) { return {}; }
            code = static_cast<unsigned char>(*data++);
            --bytes;
        }
        const MdsValueType* type = value_type_of(code);
        if (type == nullptr) { return {}; }
        elements.width = type->bytes;
        if (!column.has_shape)
        {
            if (bytes < 1) { return {}; }
            const int head = static_cast<unsigned char>(*data++);
            const int width = 1 << (head & 3);
            if (head >> 2 != 1 || bytes < 1 + width) { return {}; }
            const std::uint64_t dim = unsigned_at(data, width);
            data += width;
            bytes -= 1 + width;
            if (dim != static_cast<std::uint64_t>(bytes / elements.width)) { return {}; }
        }
    }
    if (bytes % elements.width != 0) { return {}; }
    elements.data = data;
    elements.num = bytes / elements.width;
    return elements;
}

}  // namespace

void MdsDocuments::read_sample(std::int64_t begin, std::int64_t end, TokenDocument& document)
{
    const MdsShard& shard = shards_[shard_];
    bytes_.resize(static_cast<std::size_t>(end - begin));
    file_->read_at(bytes_.data(), end - begin, begin);
    const auto fault = [&](const std::string& what)
    { return FormatError(fmt::format("{}: sample {}: {}", shard.path, sample_, what)); };
    const std::int64_t total = end - begin;
    std::int64_t at = 0;
    std::vector<std::int64_t> sizes;
    for (const MdsColumn& column : shard.columns)
    {
        if (column.fixed_size < 0 && at + 4 > total) { throw fault("truncated"); }
        sizes.push_back(column.fixed_size < 0 ? static_cast<std::int64_t>(unsigned_at(bytes_.data() + at, 4))
                                              : column.fixed_size);
        if (column.fixed_size < 0) { at += 4; }
    }
    document.mask.clear();
    for (std::size_t i = 0; i < sizes.size(); ++i)
    {
        const MdsColumn& column = shard.columns[i];
        if (at + sizes[i] > total) { throw fault(fmt::format("column '{}' ends behind it", column.name)); }
        const bool is_mask = column.name == "loss_mask";
        const bool is_tokens = column.name == options_.tokens_column;
        if (is_mask || is_tokens)
        {
            const MdsElements found =
                elements_of(column, bytes_.data() + at, sizes[i], is_mask ? 1 : options_.token_bytes);
            if (found.data == nullptr && sizes[i] > 0)
            {
                throw fault(fmt::format("column '{}' is no list in the encoding {}", column.name, column.encoding));
            }
            if (is_tokens) { document.ids.resize(static_cast<std::size_t>(found.num)); }
            else { document.mask.resize(static_cast<std::size_t>(found.num)); }
            for (std::int64_t k = 0; k < found.num; ++k)
            {
                const std::uint64_t value = unsigned_at(found.data + k * found.width, found.width);
                if (is_tokens && value > 0xffffffffull) { throw fault(fmt::format("token {} is {}", k, value)); }
                if (is_mask && value > 1) { throw fault(fmt::format("loss mask {} is {}, not 0 or 1", k, value)); }
                if (is_tokens) { document.ids[static_cast<std::size_t>(k)] = static_cast<std::uint32_t>(value); }
                else { document.mask[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(value); }
            }
        }
        at += sizes[i];
    }
    if (at != total) { throw fault(fmt::format("{} bytes behind its columns", total - at)); }
    if (has_loss_mask_ && document.mask.empty()) { document.mask.assign(document.ids.size(), 1); }
    if (has_loss_mask_ && document.mask.size() != document.ids.size())
    {
        throw fault(fmt::format("{} tokens and {} loss mask entries", document.ids.size(), document.mask.size()));
    }
}

bool MdsDocuments::next(TokenDocument& document)
{
    while (shard_ < shards_.size() && (file_ == nullptr || sample_ == shards_[shard_].samples))
    {
        if (file_ != nullptr)
        {
            ++shard_;
            file_.reset();
            continue;
        }
        open_shard();
    }
    if (shard_ == shards_.size()) { return false; }
    if (sample_ == window_begin_ + static_cast<std::int64_t>(offsets_.size()) - (offsets_.empty() ? 0 : 1))
    {
        read_offsets();
    }
    const auto at = static_cast<std::size_t>(sample_ - window_begin_);
    document.text_bytes = -1;
    read_sample(offsets_[at], offsets_[at + 1], document);
    bytes_read_ += offsets_[at + 1] - offsets_[at];
    ++sample_;
    return true;
}

}  // namespace plimsoll
