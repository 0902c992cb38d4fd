// Which files are meant, and whether they can be read as text at all: asked of every file before the first is read.

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/cli.hpp"
#include "base/error.hpp"
#include "base/exit_as.hpp"
#include "base/text_file.hpp"
#include "io/file.hpp"
#include "io/text_input.hpp"
#include "io/text_input_stream.hpp"

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

std::string_view without_compression_ending(std::string_view path)
{
    for (const std::string_view end : {".gz", ".zst"})
    {
        if (ends_with(path, end)) { return path.substr(0, path.size() - end.size()); }
    }
    return path;
}

TextFormat format_of_name(const std::string& path)
{
    for (const auto& entry : {std::pair<std::string_view, std::string_view>{".bz2", "bzip2"}, {".xz", "xz"}})
    {
        VALIDATE(!ends_with(path, entry.first), UsageError,
                 "cannot read '{}' ({} is not available in this version). compress it with gzip or zstd", path,
                 entry.second);
    }
    const std::string_view name = without_compression_ending(path);
    for (const std::string_view end : {".jsonl", ".ndjson"})
    {
        if (ends_with(name, end)) { return TextFormat::jsonl; }
    }
    for (const std::string_view end : {".txt", ".text", ".md"})
    {
        if (ends_with(name, end)) { return TextFormat::txt; }
    }
    if (ends_with(path, ".parquet")) { return TextFormat::parquet; }
    throw UsageError(fmt::format(
        "cannot tell the format of '{}' (endings known: .jsonl .ndjson .txt .text .md .parquet, the first five "
        "with .gz or .zst behind them too). say --format txt, jsonl or parquet",
        path));
}

/// Content under a name that says something else would become replacement characters without anybody noticing.
Compression check_first_bytes(const File& file, TextFormat format)
{
    using namespace std::string_view_literals;
    char start[4] = {};
    const std::int64_t bytes = std::min<std::int64_t>(4, file.size());
    file.read_at(start, bytes, 0);
    const std::string_view first(start, static_cast<std::size_t>(bytes));
    const bool parquet = first == "PAR1"sv;
    VALIDATE(parquet || format != TextFormat::parquet, UsageError,
             "cannot read '{}' (it does not begin as Parquet does)", file.path());
    VALIDATE(!parquet || format == TextFormat::parquet, UsageError,
             "cannot read '{}' (its first bytes are those of Parquet). say --format parquet", file.path());
    VALIDATE(!starts_with(first, "\xFF\xFE"sv) && !starts_with(first, "\xFE\xFF"sv), UsageError,
             "cannot read '{}' (UTF-16 by its byte order mark). convert it to UTF-8", file.path());
    const Compression compression = compression_of(start, bytes);
    const std::string_view named = file.path();
    VALIDATE(compression != Compression::none || (!ends_with(named, ".gz") && !ends_with(named, ".zst")), UsageError,
             "cannot read '{}' (its first bytes are neither gzip nor zstd). is it complete?", file.path());
    return compression;
}

File open_input(const std::string& path)
{
    return exit_as<IoError>(ExitCode::usage, [&] { return File(path, File::Mode::read); });
}

InputFile input_file_of(const std::string& path, const struct stat& status, TextFormat format)
{
    InputFile file;
    file.path = path;
    file.bytes = status.st_size;
    file.modified_ns = static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
    file.format = format == TextFormat::by_name ? format_of_name(path) : format;
    file.compression = check_first_bytes(open_input(path), file.format);
    return file;
}

InputFile standard_input_file(TextFormat format)
{
    VALIDATE(format == TextFormat::txt || format == TextFormat::jsonl, UsageError,
             "cannot tell the format of standard input. say --format txt or jsonl");
    InputFile file;
    file.path = standard_input;
    file.format = format;
    return file;
}

/// A list has a path or pattern in each line; blank lines and those that begin with # are passed over.
std::vector<std::string> with_lists_expanded(const std::vector<std::string>& patterns)
{
    std::vector<std::string> result;
    for (const std::string& pattern : patterns)
    {
        if (pattern.size() < 2 || pattern[0] != '@')
        {
            result.push_back(pattern);
            continue;
        }
        const std::string text = load_text(pattern.substr(1), "the list of inputs");
        for (std::size_t at = 0; at < text.size();)
        {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            std::string line = text.substr(at, end - at);
            if (!line.empty() && line.back() == '\r') { line.pop_back(); }
            if (!line.empty() && line[0] != '#') { result.push_back(std::move(line)); }
            at = end + 1;
        }
    }
    return result;
}

}  // namespace

std::vector<InputFile> find_input_files(const std::vector<std::string>& patterns, TextFormat format)
{
    VALIDATE(!patterns.empty(), UsageError, "no input files. give them with --input");
    std::vector<InputFile> files;
    std::set<std::pair<dev_t, ino_t>> seen;
    bool from_standard_input = false;
    for (const std::string& pattern : with_lists_expanded(patterns))
    {
        if (pattern == standard_input)
        {
            if (!from_standard_input) { files.push_back(standard_input_file(format)); }
            from_standard_input = true;
            continue;
        }
        for (const std::string& path : expand(pattern))
        {
            struct stat status;
            VALIDATE(::stat(path.c_str(), &status) == 0, UsageError, "cannot read '{}' ({})", path,
                     system_reason(errno));
            VALIDATE(!S_ISDIR(status.st_mode), UsageError,
                     "cannot read '{}' (a directory). name its files: '{}/*.jsonl'", path, path);
            VALIDATE(
                S_ISREG(status.st_mode), UsageError,
                "cannot read '{}' (not a regular file). write it to a file first, or to standard input (--input -)",
                path);
            if (!seen.insert({status.st_dev, status.st_ino}).second) { continue; }
            files.push_back(input_file_of(path, status, format));
        }
    }
    VALIDATE(!files.empty(), UsageError, "no input files (the list is empty). give them with --input");
    return files;
}

}  // namespace plimsoll
