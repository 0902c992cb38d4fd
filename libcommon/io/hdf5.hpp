#pragma once
/// The only door to the HDF5 library (for io's own .cpp files). Every file that it makes is of one kind: readable by
/// HDF5 1.10 and later, contiguous, early allocated and never filled datasets without filters, so that bytes can be
/// read and written by POSIX at Dataset::file_offset(); metadata is checksummed by the library (format V110).
///
/// Errors of the library come as FormatError or IoError with the library's reason in the text; nothing is printed.
/// Thread-safe: calls are serialised by one lock. Handles close themselves; closing a file closes all that is open in it.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

namespace plimsoll
{

/// A library identifier that knows how to close itself. Moves only.
class H5Handle
{
  public:
    using Close = int (*)(std::int64_t);
    H5Handle() = default;
    H5Handle(std::int64_t id, Close closer) : id_(id), close_(closer) {}
    ~H5Handle();
    H5Handle(H5Handle&& other) noexcept;
    H5Handle& operator=(H5Handle&& other) noexcept;
    H5Handle(const H5Handle&) = delete;
    H5Handle& operator=(const H5Handle&) = delete;

    std::int64_t id() const { return id_; }
    /// Closes now; negative when the library refused.
    int close();

  private:
    std::int64_t id_ = -1;
    Close close_ = nullptr;
};

/// Something with attributes: a group (also the root of a file) or a dataset. More than 8 attributes cost 2 KiB more: don't.
/// Getters @throw FormatError naming file, object and attribute when it is missing or of another kind.
class H5Object
{
  public:
    bool has_attribute(const std::string& name) const;
    void set_attribute(const std::string& name, std::int64_t value);
    void set_attribute(const std::string& name, std::uint64_t value);
    void set_attribute(const std::string& name, std::uint8_t value); ///< may overwrite an existing one in place
    void set_attribute(const std::string& name, double value);
    void set_attribute(const std::string& name, const std::string& value);
    void set_attribute(const std::string& name, const char* value) { set_attribute(name, std::string(value)); }
    void set_attribute(const std::string& name, const std::vector<std::uint64_t>& values);

    std::int64_t attribute_i64(const std::string& name) const;
    std::uint64_t attribute_u64(const std::string& name) const;
    double attribute_f64(const std::string& name) const;
    std::string attribute_string(const std::string& name) const;
    std::vector<std::uint64_t> attribute_u64s(const std::string& name) const;

    /// "file.h5: /path", for messages.
    const std::string& where() const { return where_; }

  protected:
    H5Object() = default;
    H5Object(H5Handle handle, std::string where) : handle_(std::move(handle)), where_(std::move(where)) {}
    H5Handle handle_;
    std::string where_;

  private:
    void write_attribute(const std::string& name, std::int64_t file_type, std::int64_t memory_type,
                         const std::vector<std::uint64_t>* dims, const void* data);
    void read_attribute(const std::string& name, std::int64_t memory_type, std::size_t wanted, void* data) const;
    friend class H5File;
};

class H5Group : public H5Object
{
  public:
    /// Names of links in this group, in order of creation.
    std::vector<std::string> children() const;

  private:
    H5Group(H5Handle handle, std::string where) : H5Object(std::move(handle), std::move(where)) {}
    friend class H5File;
};

class H5Dataset : public H5Object
{
  public:
    const std::vector<std::uint64_t>& dims() const { return dims_; }
    std::int64_t num_elements() const;
    /// @throws FormatError when the type is none of ours.
    Dtype dtype() const;
    /// Where the raw bytes lie in the file, -1 when none do (no elements). Constant from creation on.
    std::int64_t file_offset() const;
    std::int64_t storage_bytes() const;

    /// Whole dataset; memory in the file's type, C order.
    void write(const void* data);
    void read(void* data) const;
    /// Rows [begin, begin + num) of the first dim.
    void write_rows(std::int64_t begin, std::int64_t num, const void* data);
    void read_rows(std::int64_t begin, std::int64_t num, void* data) const;

  private:
    H5Dataset(H5Handle handle, std::string where);
    std::vector<std::uint64_t> dims_;
    friend class H5File;
};

/// A column of a table (HDF5 compound type). `count` > 1 makes a fixed array; kind `text` is a null-padded string of
/// `count` bytes. Integer and float kinds are the file's little-endian types.
struct H5Column
{
    enum class Kind { u8, u32, u64, i64, f64, text };
    std::string name;
    Kind kind = Kind::u64;
    std::size_t offset = 0; ///< byte offset in the row struct
    std::size_t count = 1;
};

struct H5TableType
{
    std::size_t row_bytes = 0;
    std::vector<H5Column> columns;
};

struct H5CreateOptions
{
    std::int64_t align_threshold = 64 * 1024; ///< datasets of at least this many bytes ...
    std::int64_t alignment = 4096;            ///< ... start at a multiple of this
};

class H5File
{
  public:
    enum class Access { read, read_write };

    /// A new file; an existing one is replaced. It cannot be opened by a reader until it is closed cleanly.
    static H5File create(const std::string& path, const H5CreateOptions& options = {});
    /// @throws IoError (cannot open, locked), FormatError (not HDF5, truncated, damaged, left open by a crash)
    static H5File open(const std::string& path, Access access);

    H5Group root() const;
    H5Group group(const std::string& path) const;
    H5Group create_group(const std::string& path); ///< with its parents
    bool exists(const std::string& path) const;

    /// Parents are made. No element: a dataset without storage. Empty dims: a scalar. f8_e4m3 and f8_e5m2 are stored as
    /// bytes with the attribute dtype; bf16 and f16 as native floats.
    H5Dataset create_dataset(const std::string& path, Dtype dtype, const std::vector<std::int64_t>& dims);
    H5Dataset dataset(const std::string& path) const;

    H5Dataset create_table(const std::string& path, const H5TableType& type, std::int64_t num_rows);
    /// Reads all rows; columns are matched by name. @throws FormatError when one is missing.
    void read_table(const std::string& path, const H5TableType& type, void* rows) const;
    void write_table(const std::string& path, const H5TableType& type, const void* rows);

    /// A one-dimensional dataset of null-padded UTF-8 strings of one length (that of the longest).
    H5Dataset create_strings(const std::string& path, const std::vector<std::string>& values);
    std::vector<std::string> read_strings(const std::string& path) const;

    void flush();
    /// Closes and reports what a destructor would swallow.
    void close();
    const std::string& path() const { return path_; }

  private:
    H5File(H5Handle handle, std::string path) : handle_(std::move(handle)), path_(std::move(path)) {}
    H5Group make_group(const std::string& path);
    void make_parents(const std::string& path);
    H5Dataset make_dataset(const std::string& path, std::int64_t type, const std::vector<std::int64_t>& dims);
    std::string where(const std::string& object) const;
    H5Handle handle_;
    std::string path_;
    std::set<std::string> groups_; ///< known to exist
};

}  // namespace plimsoll
