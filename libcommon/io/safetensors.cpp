#include "io/safetensors.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::json;

struct TypeInfo
{
    const char* name;
    std::int64_t bits;
};

constexpr std::array<TypeInfo, 22> types = {{{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},
                                             {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8},     {"F8_E4M3", 8},
                                             {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                                             {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"I32", 32},
                                             {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
                                             {"I64", 64},    {"U64", 64}}};

constexpr std::array<std::pair<const char*, Dtype>, 12> ours = {{{"F32", Dtype::f32},
                                                                 {"F64", Dtype::f64},
                                                                 {"BF16", Dtype::bf16},
                                                                 {"F16", Dtype::f16},
                                                                 {"F8_E4M3", Dtype::f8_e4m3},
                                                                 {"F8_E5M2", Dtype::f8_e5m2},
                                                                 {"I32", Dtype::i32},
                                                                 {"I64", Dtype::i64},
                                                                 {"U8", Dtype::u8},
                                                                 {"U16", Dtype::u16},
                                                                 {"U32", Dtype::u32},
                                                                 {"U64", Dtype::u64}}};

// -1 for a type that the format does not know.
std::int64_t bits_of(const std::string& dtype)
{
    for (const TypeInfo& type : types)
    {
        if (dtype == type.name) { return type.bits; }
    }
    return -1;
}

// Bytes that shape and type ask for. @throws FormatError
std::int64_t wanted_bytes(const SafetensorsTensor& tensor)
{
    std::int64_t bits = bits_of(tensor.dtype);
    VALIDATE(bits > 0, FormatError, "tensor '{}' has unknown dtype '{}'", tensor.name, tensor.dtype);
    for (const std::int64_t extent : tensor.shape)
    {
        VALIDATE(extent >= 0 && !__builtin_mul_overflow(bits, extent, &bits), FormatError,
                 "tensor '{}' has an impossible shape", tensor.name);
    }
    VALIDATE(bits % 8 == 0, FormatError, "tensor '{}' ends inside a byte ({} bits)", tensor.name, bits);
    return bits / 8;
}

// A key twice in one object is forbidden, and the parser would keep the last one silently.
class DuplicateKeys
{
  public:
    bool operator()(int depth, Json::parse_event_t event, Json& parsed)
    {
        const auto level = static_cast<std::size_t>(depth);
        if (event == Json::parse_event_t::object_start)
        {
            if (keys_.size() <= level + 1) { keys_.resize(level + 2); }
            keys_[level + 1].clear();
        }
        if (event == Json::parse_event_t::key)
        {
            const std::string key = parsed.get<std::string>();
            VALIDATE(keys_[level].insert(key).second, FormatError, "header has the key '{}' twice", key);
        }
        return true;
    }

  private:
    std::vector<std::set<std::string>> keys_ = std::vector<std::set<std::string>>(2);
};

// The library's texts start with an identifier in brackets.
std::string reason_of(const Json::exception& error)
{
    const std::string reason = error.what();
    return reason.substr(std::min(reason.size(), reason.find("] ") + 2));
}

Json parse_json(const std::string& text)
{
    try
    {
        DuplicateKeys duplicates;
        return Json::parse(text, [&duplicates](int depth, Json::parse_event_t event, Json& parsed) {
            return duplicates(depth, event, parsed);
        });
    }
    catch (const Json::exception& error)
    {
        throw FormatError(fmt::format("header is not valid json ({})", reason_of(error)));
    }
}

SafetensorsTensor parse_tensor(const std::string& name, const Json& entry, std::int64_t data_start)
{
    SafetensorsTensor tensor;
    tensor.name = name;
    std::array<std::int64_t, 2> offsets{};
    try
    {
        tensor.dtype = entry.at("dtype").get<std::string>();
        for (const Json& extent : entry.at("shape"))
        {
            VALIDATE(extent.is_number_unsigned(), FormatError, "tensor '{}' has an impossible shape", name);
            tensor.shape.push_back(extent.get<std::int64_t>());
        }
        const Json& pair = entry.at("data_offsets");
        VALIDATE(pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() && pair[1].is_number_unsigned(),
                 FormatError, "tensor '{}' has no pair of data_offsets", name);
        offsets = pair.get<std::array<std::int64_t, 2>>();
    }
    catch (const Json::exception& error)
    {
        throw FormatError(fmt::format("tensor '{}' is not described ({})", name, reason_of(error)));
    }
    VALIDATE(offsets[0] >= 0 && offsets[1] >= offsets[0], FormatError, "tensor '{}' ends before it begins ({} to {})", name,
             offsets[0], offsets[1]);
    tensor.bytes = offsets[1] - offsets[0];
    VALIDATE(!__builtin_add_overflow(offsets[0], data_start, &tensor.offset), FormatError, "tensor '{}' has an impossible offset",
             name);
    const std::int64_t wanted = wanted_bytes(tensor);
    VALIDATE(tensor.bytes == wanted, FormatError, "tensor '{}' has {} bytes, its shape needs {}", name, tensor.bytes, wanted);
    return tensor;
}

std::map<std::string, std::string> parse_metadata(const Json& entry)
{
    std::map<std::string, std::string> metadata;
    VALIDATE(entry.is_object(), FormatError, "__metadata__ is not a map of strings");
    for (const auto& item : entry.items())
    {
        VALIDATE(item.value().is_string(), FormatError, "__metadata__ is not a map of strings (see '{}')", item.key());
        metadata[item.key()] = item.value().get<std::string>();
    }
    return metadata;
}

// Sorted by place, tensors must follow each other from the start of the data to the end of the file.
void check_places(std::vector<SafetensorsTensor>& tensors, std::int64_t data_start, std::int64_t file_bytes)
{
    std::sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
        return std::make_pair(a.offset, a.offset + a.bytes) < std::make_pair(b.offset, b.offset + b.bytes);
    });
    std::int64_t end = data_start;
    for (const SafetensorsTensor& tensor : tensors)
    {
        VALIDATE(tensor.offset == end, FormatError, "tensor '{}' starts at byte {} of the data, the one before it ends at {} ({})",
                 tensor.name, tensor.offset - data_start, end - data_start, tensor.offset < end ? "overlap" : "hole");
        end = tensor.offset + tensor.bytes;
    }
    VALIDATE(end <= file_bytes, FormatError, "truncated file ({} bytes, the header asks for {})", file_bytes, end);
    VALIDATE(end == file_bytes, FormatError, "{} trailing bytes ({} bytes, the header asks for {})", file_bytes - end, file_bytes,
             end);
}

}  // namespace

Dtype safetensors_dtype(const std::string& name)
{
    for (const auto& type : ours)
    {
        if (name == type.first) { return type.second; }
    }
    throw FormatError(fmt::format("dtype {} is not supported", name));
}

const char* safetensors_name(Dtype dtype)
{
    for (const auto& type : ours)
    {
        if (dtype == type.second) { return type.first; }
    }
    throw InternalError("dtype without a safetensors name");
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path, File::Mode::read)
{
    with_context(path, [&] {
        const std::int64_t file_bytes = file_.size();
        VALIDATE(file_bytes >= 8, FormatError, "header is too small ({} bytes, at least 8 are needed)", file_bytes);
        std::uint64_t length = 0;
        file_.read_at(&length, 8, 0);
        VALIDATE(length <= static_cast<std::uint64_t>(max_header_bytes), FormatError,
                 "header is too large ({} bytes, at most {} are allowed)", length, max_header_bytes);
        const std::int64_t data_start = 8 + static_cast<std::int64_t>(length);
        VALIDATE(data_start <= file_bytes, FormatError, "header goes beyond the file ({} bytes, the file has {})", data_start,
                 file_bytes);
        std::string text(static_cast<std::size_t>(length), '\0');
        file_.read_at(text.data(), static_cast<std::int64_t>(length), 8);
        const Json header = parse_json(text);
        VALIDATE(header.is_object(), FormatError, "header is not a json object");
        for (const auto& item : header.items())
        {
            if (item.key() == "__metadata__") { metadata_ = parse_metadata(item.value()); }
            else { tensors_.push_back(parse_tensor(item.key(), item.value(), data_start)); }
        }
        check_places(tensors_, data_start, file_bytes);
    });
    for (std::size_t k = 0; k < tensors_.size(); ++k) { by_name_[tensors_[k].name] = k; }
}

const SafetensorsTensor& SafetensorsReader::at(const std::string& name) const
{
    const auto found = by_name_.find(name);
    VALIDATE(found != by_name_.end(), FormatError, "{}: no tensor '{}'", path(), name);
    return tensors_[found->second];
}

void SafetensorsReader::read(const std::string& name, void* data) const
{
    const SafetensorsTensor& tensor = at(name);
    file_.read_at(data, tensor.bytes, tensor.offset);
}

void SafetensorsReader::read_bytes(const std::string& name, std::int64_t begin, std::int64_t bytes, void* data) const
{
    const SafetensorsTensor& tensor = at(name);
    EXPECT(begin >= 0 && bytes >= 0 && begin <= tensor.bytes && bytes <= tensor.bytes - begin);
    file_.read_at(data, bytes, tensor.offset + begin);
}

namespace
{

// weight_map of an index file.
std::map<std::string, std::string> read_index(const std::string& path)
{
    return with_context(path, [&] {
        const Json index = parse_json(read_text_file(path));
        VALIDATE(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), FormatError,
                 "no weight_map");
        std::map<std::string, std::string> files;
        for (const auto& item : index["weight_map"].items())
        {
            VALIDATE(item.value().is_string() && item.value().get<std::string>().find('/') == std::string::npos, FormatError,
                     "weight_map of '{}' is not a file name", item.key());
            files[item.key()] = item.value().get<std::string>();
        }
        return files;
    });
}

}  // namespace

SafetensorsModel::SafetensorsModel(const std::string& path) : path_(path)
{
    std::map<std::string, std::string> map;
    std::vector<std::string> files;
    const std::string index = path + "/model.safetensors.index.json";
    if (!is_directory(path)) { files = {path}; }
    else if (path_exists(index))
    {
        map = read_index(index);
        std::set<std::string> names;
        for (const auto& item : map) { names.insert(path + "/" + item.second); }
        files.assign(names.begin(), names.end());
    }
    else { files = {path + "/model.safetensors"}; }
    for (const std::string& file : files)
    {
        readers_.push_back(std::make_unique<SafetensorsReader>(file));
        for (const SafetensorsTensor& tensor : readers_.back()->tensors())
        {
            VALIDATE(reader_of_.emplace(tensor.name, readers_.size() - 1).second, FormatError,
                     "{}: tensor '{}' is in another file too", file, tensor.name);
            VALIDATE(map.empty() || map.count(tensor.name) > 0, FormatError, "{}: tensor '{}' is not in the index", file,
                     tensor.name);
        }
    }
    for (const auto& item : map)
    {
        const auto found = reader_of_.find(item.first);
        VALIDATE(found != reader_of_.end() && readers_[found->second]->path() == path + "/" + item.second, FormatError,
                 "{}: tensor '{}' is not in '{}'", index, item.first, item.second);
    }
}

const SafetensorsReader& SafetensorsModel::reader(const std::string& name) const
{
    const auto found = reader_of_.find(name);
    VALIDATE(found != reader_of_.end(), FormatError, "{}: no tensor '{}'", path_, name);
    return *readers_[found->second];
}

const SafetensorsTensor& SafetensorsModel::at(const std::string& name) const
{
    return reader(name).at(name);
}

std::vector<std::string> SafetensorsModel::names() const
{
    std::vector<std::string> list;
    for (const auto& item : reader_of_) { list.push_back(item.first); }
    return list;
}

void SafetensorsModel::read(const std::string& name, void* data) const
{
    reader(name).read(name, data);
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<SafetensorsTensor> tensors,
                                     std::map<std::string, std::string> metadata)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp{}", path_, ::getpid())), tensors_(std::move(tensors))
{
    // As the reference writer does: wide types first, so that every tensor is aligned to its element.
    std::sort(tensors_.begin(), tensors_.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
        return std::make_pair(-bits_of(a.dtype), a.name) < std::make_pair(-bits_of(b.dtype), b.name);
    });
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) { header["__metadata__"] = metadata; }
    std::int64_t end = 0;
    for (std::size_t k = 0; k < tensors_.size(); ++k)
    {
        SafetensorsTensor& tensor = tensors_[k];
        tensor.bytes = wanted_bytes(tensor);
        tensor.offset = end;
        end += tensor.bytes;
        EXPECT(by_name_.emplace(tensor.name, k).second && tensor.name != "__metadata__");
        header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, end}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    VALIDATE(static_cast<std::int64_t>(text.size()) <= SafetensorsReader::max_header_bytes, FormatError,
             "{}: header would be too large ({} bytes, at most {} are allowed)", path_, text.size(),
             SafetensorsReader::max_header_bytes);
    for (SafetensorsTensor& tensor : tensors_) { tensor.offset += 8 + static_cast<std::int64_t>(text.size()); }
    written_.assign(tensors_.size(), false);
    const std::uint64_t length = text.size();
    file_ = std::make_unique<File>(temporary_, File::Mode::create);
    try
    {
        file_->write_at(&length, 8, 0);
        file_->write_at(text.data(), static_cast<std::int64_t>(text.size()), 8);
    }
    catch (...)
    {
        ::unlink(temporary_.c_str());
        throw;
    }
}

SafetensorsWriter::~SafetensorsWriter()
{
    if (file_) { ::unlink(temporary_.c_str()); }
}

void SafetensorsWriter::write(const std::string& name, const void* data)
{
    const auto found = by_name_.find(name);
    EXPECT(found != by_name_.end() && !written_[found->second] && file_ != nullptr);
    const SafetensorsTensor& tensor = tensors_[found->second];
    file_->write_at(data, tensor.bytes, tensor.offset);
    written_[found->second] = true;
}

void SafetensorsWriter::finish()
{
    EXPECT(file_ != nullptr && std::find(written_.begin(), written_.end(), false) == written_.end());
    file_->sync();
    file_->close();
    rename_path(temporary_, path_);
    file_.reset();
    const std::size_t slash = path_.rfind('/');
    sync_directory(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

}  // namespace plimsoll
