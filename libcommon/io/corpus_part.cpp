#include "io/corpus_part.hpp"

#include <algorithm>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/corpus.hpp"
#include "io/text_input_stream.hpp"

namespace plimsoll
{

namespace
{

/// total * part / num without overflow.
std::int64_t share_border(std::int64_t total, std::int64_t part, std::int64_t num)
{
    return total / num * part + total % num * part / num;
}

}  // namespace

std::vector<InputFile> files_of_part(const std::vector<InputFile>& files, DocumentUnit unit, std::int64_t part,
                                     std::int64_t num)
{
    EXPECT(num > 0 && part >= 0 && part < num);
    std::int64_t total = 0;
    for (const InputFile& file : files)
    {
        VALIDATE(file.path != standard_input, UsageError, "standard input cannot be shared by {} tasks. name files",
                 num);
        total += file.bytes;
    }
    const std::int64_t low = share_border(total, part, num);
    const std::int64_t high = share_border(total, part + 1, num);
    std::vector<InputFile> taken;
    std::int64_t start = 0;
    for (const InputFile& file : files)
    {
        const std::int64_t end = start + file.bytes;
        InputFile piece = file;
        if (divisible(file, unit))
        {
            piece.begin = std::max(low, start) - start;
            piece.end = std::min(high, end) - start;
            if (piece.begin < piece.end) { taken.push_back(std::move(piece)); }
        }
        else if (start >= low && (start < high || part == num - 1)) { taken.push_back(std::move(piece)); }
        start = end;
    }
    return taken;
}

std::int64_t bytes_of_ranges(const std::vector<InputFile>& files)
{
    std::int64_t bytes = 0;
    for (const InputFile& file : files)
    {
        const std::int64_t begin = file.begin > 0 ? line_start_behind(file.path, file.begin) : 0;
        const std::int64_t end = file.end >= 0 ? line_start_behind(file.path, file.end) : file.bytes;
        bytes += end - begin;
    }
    return bytes;
}

std::string inputs_fingerprint(const std::vector<InputFile>& files)
{
    std::string text;
    for (const InputFile& file : files) { text += fmt::format("{} {}\n", file.bytes, file.path); }
    return sha256_hex(text);
}

std::string corpus_part_directory(const std::string& out, std::int64_t part, std::int64_t num_parts)
{
    return fmt::format("{}/part_{:05}_of_{:05}", out, part, num_parts);
}

}  // namespace plimsoll
