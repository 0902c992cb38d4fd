// Which files are meant, and whether they can be read as text at all: asked of every file before the first is read.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "base/cli.hpp"
#include "base/error.hpp"
#include "base/text_file.hpp"
#include "io/file.hpp"
#include "io/text_input.hpp"

namespace plimsoll
{

namespace
{

bool ends_with(std::string_view text, std::string_view end)
{
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

/// By bytes: glob's own order may follow the locale.
std::vector<std::string> expand(const std::string& pattern)
{
    std::vector<std::string> paths = expand_glob(pattern);
    std::sort(paths.begin(), paths.end());
    return paths;
}

TextFormat format_of_name(const std::string& path)
{
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> later = {
        {{".gz", "gzip"}, {".zst", "zstd"}, {".parquet", "parquet"}, {".bz2", "bzip2"}, {".xz", "xz"}}};
    for (const auto& entry : later)
    {
        VALIDATE(!ends_with(path, entry.first), UsageError,
                 "cannot read '{}' ({} input is not available in this version). available: .jsonl .txt, uncompressed",
                 path, entry.second);
    }
    for (const std::string_view end : {".jsonl", ".ndjson"})
    {
        if (ends_with(path, end)) { return TextFormat::jsonl; }
    }
    for (const std::string_view end : {".txt", ".text", ".md"})
    {
        if (ends_with(path, end)) { return TextFormat::txt; }
    }
    throw UsageError(fmt::format(
        "cannot tell the format of '{}' (endings known: .jsonl .ndjson .txt .text .md). say --format txt or jsonl",
        path));
}

/// Compressed or UTF-16 content under a text name would become replacement characters without anybody noticing.
void check_first_bytes(const File& file)
{
    using namespace std::string_view_literals;
    char start[4] = {};
    const std::int64_t bytes = std::min<std::int64_t>(4, file.size());
    file.read_at(start, bytes, 0);
    const std::string_view first(start, static_cast<std::size_t>(bytes));
    const std::string_view kind = starts_with(first, "\x1F\x8B"sv)           ? "gzip"
                                  : starts_with(first, "\x28\xB5\x2F\xFD"sv) ? "zstd"
                                  : starts_with(first, "PAR1"sv)             ? "parquet"
                                                                             : "";
    VALIDATE(kind.empty(), UsageError,
             "cannot read '{}' (its first bytes are {}, which is not available in this version). decompress it first",
             file.path(), kind);
    VALIDATE(!starts_with(first, "\xFF\xFE"sv) && !starts_with(first, "\xFE\xFF"sv), UsageError,
             "cannot read '{}' (UTF-16 by its byte order mark). convert it to UTF-8", file.path());
}

/// A file that the user named and that cannot be opened is his to mend.
File open_input(const std::string& path)
{
    try
    {
        return File(path, File::Mode::read);
    }
    catch (IoError& error)
    {
        error.set_exit_code(ExitCode::usage);
        throw;
    }
}

}  // namespace

std::vector<InputFile> find_input_files(const std::vector<std::string>& patterns, TextFormat format)
{
    VALIDATE(!patterns.empty(), UsageError, "no input files. give them with --input");
    std::vector<InputFile> files;
    std::set<std::pair<dev_t, ino_t>> seen;
    for (const std::string& pattern : patterns)
    {
        for (const std::string& path : expand(pattern))
        {
            struct stat status;
            VALIDATE(::stat(path.c_str(), &status) == 0, UsageError, "cannot read '{}' ({})", path, system_reason(errno));
            VALIDATE(!S_ISDIR(status.st_mode), UsageError,
                     "cannot read '{}' (a directory). name its files: '{}/*.jsonl'", path, path);
            VALIDATE(S_ISREG(status.st_mode), UsageError,
                     "cannot read '{}' (not a regular file). write it to a file first", path);
            if (!seen.insert({status.st_dev, status.st_ino}).second) { continue; }
            InputFile file;
            file.path = path;
            file.bytes = status.st_size;
            file.format = format == TextFormat::by_name ? format_of_name(path) : format;
            check_first_bytes(open_input(path));
            files.push_back(std::move(file));
        }
    }
    return files;
}

}  // namespace plimsoll
