#pragma once
/// safetensors files (huggingface/safetensors README): a JSON header that says where each tensor's bytes lie, then the bytes.
/// Reading is strict: what the format forbids is refused with the file and the tensor named.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "io/file.hpp"

namespace plimsoll
{

struct SafetensorsTensor
{
    std::string name;
    std::string dtype;               ///< as the file says it: F32, BF16, BOOL, ...
    std::vector<std::int64_t> shape; ///< C order; empty: a scalar
    std::int64_t bytes = 0;
    std::int64_t offset = 0;         ///< in the file
};

/// Our name of a safetensors type and back. @throws FormatError / InternalError when the other side has none (BOOL, F4)
Dtype safetensors_dtype(const std::string& name);
const char* safetensors_name(Dtype dtype);

/// One file. Reads are positional and may come from several threads.
class SafetensorsReader
{
  public:
    static constexpr std::int64_t max_header_bytes = 100000000;

    /// Reads and checks the whole header. @throws IoError, FormatError
    explicit SafetensorsReader(const std::string& path);

    const std::string& path() const { return file_.path(); }
    /// In order of their bytes.
    const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
    /// The header's __metadata__.
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    bool has(const std::string& name) const { return by_name_.count(name) > 0; }
    /// @throws FormatError when there is none
    const SafetensorsTensor& at(const std::string& name) const;
    /// All bytes of a tensor into `data`.
    void read(const std::string& name, void* data) const;
    /// Part of a tensor's bytes.
    void read_bytes(const std::string& name, std::int64_t begin, std::int64_t bytes, void* data) const;

  private:
    File file_;
    std::vector<SafetensorsTensor> tensors_;
    std::map<std::string, std::size_t> by_name_;
    std::map<std::string, std::string> metadata_;
};

/// A model: one file, or a directory with model.safetensors, or with model.safetensors.index.json and its files.
class SafetensorsModel
{
  public:
    /// @throws IoError, FormatError, also when index and files disagree in either direction
    explicit SafetensorsModel(const std::string& path);

    bool has(const std::string& name) const { return reader_of_.count(name) > 0; }
    const SafetensorsTensor& at(const std::string& name) const;
    std::vector<std::string> names() const;
    void read(const std::string& name, void* data) const;

  private:
    const SafetensorsReader& reader(const std::string& name) const;
    std::string path_;
    std::vector<std::unique_ptr<SafetensorsReader>> readers_;
    std::map<std::string, std::size_t> reader_of_;
};

/// Writes one file: header first, then tensors in any order; visible after finish(). One thread.
class SafetensorsWriter
{
  public:
    /// Of `tensors` only name, dtype and shape count. @throws InternalError on a name twice
    SafetensorsWriter(std::string path, std::vector<SafetensorsTensor> tensors, std::map<std::string, std::string> metadata);
    /// Without finish() the file is not made visible and what was written is removed.
    ~SafetensorsWriter();
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

    /// All bytes of a tensor; each exactly once.
    void write(const std::string& name, const void* data);
    /// Sync, rename, sync. @throws InternalError when a tensor was not written
    void finish();

  private:
    std::string path_, temporary_;
    std::vector<SafetensorsTensor> tensors_;
    std::map<std::string, std::size_t> by_name_;
    std::vector<bool> written_;
    std::unique_ptr<File> file_;
};

}  // namespace plimsoll
