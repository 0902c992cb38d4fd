#include "io/corpus_output.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>

#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "io/corpus_manifest.hpp"

namespace plimsoll
{

namespace
{

constexpr const char* lock_name = ".lock";

/// The directory behind a link, so that renaming does not replace the link itself.
std::string real_path(const std::string& path)
{
    char* resolved = ::realpath(path.c_str(), nullptr);
    if (resolved == nullptr) { return path; }
    std::string result = resolved;
    std::free(resolved);
    return result;
}

/// Without slashes at the end.
std::string trimmed(std::string path)
{
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    return path;
}

bool is_shard_file(const std::string& name)
{
    return name.size() > 9 && name.compare(0, 6, "shard_") == 0 && name.compare(name.size() - 3, 3, ".h5") == 0;
}

/// Name of an entry that plimsoll-shard did not write; empty when there is none.
std::string foreign_entry(const std::string& directory)
{
    for (const std::string& name : list_directory(directory))
    {
        const bool ours = is_shard_file(name) || name == corpus_manifest_name || name == "bad_records.jsonl" ||
                          name == "duplicates.jsonl";
        if (ours) { continue; }
        if (name != "validation" || !is_directory(directory + "/" + name)) { return name; }
        for (const std::string& inner : list_directory(directory + "/" + name))
        {
            if (!is_shard_file(inner)) { return name + "/" + inner; }
        }
    }
    return "";
}

}  // namespace

void check_corpus_output(const std::string& path, CorpusOutput::Existing existing)
{
    // The shards are made beside it and take its place.
    require_writable(parent_of(trimmed(real_path(path))), "choose another --out");
    if (!path_exists(path)) { return; }
    VALIDATE(is_directory(path), UsageError, "'{}' exists and is not a directory. choose another --out", path);
    if (list_directory(path).empty()) { return; }
    VALIDATE(existing == CorpusOutput::Existing::replace, UsageError,
             "'{}' exists and is not empty. choose another --out, or --force to replace the shards in it", path);
    const std::string foreign = foreign_entry(path);
    VALIDATE(foreign.empty(), UsageError,
             "'{}' holds '{}', which plimsoll-shard did not write (--force replaces token shards only). choose another "
             "--out",
             path, foreign);
    read_corpus_manifest(path);
}

CorpusOutput::CorpusOutput(const std::string& path, Existing existing) : shown_(path), path_(real_path(path))
{
    path_ = trimmed(path_);
    const std::size_t slash = path_.rfind('/');
    parent_ = parent_of(path_);
    partial_ = parent_ + "/." + path_.substr(slash == std::string::npos ? 0 : slash + 1) + ".partial";
    check_corpus_output(shown_, existing);
    make_directories(partial_);
    lock();
}

void CorpusOutput::clear(const std::vector<std::string>& but)
{
    const auto wanted = [&](const std::string& name)
    { return name == lock_name || std::find(but.begin(), but.end(), name) != but.end(); };
    for (const std::string& name : list_directory(partial_))
    {
        if (wanted(name)) { continue; }
        const std::string path = partial_ + "/" + name;
        if (!is_directory(path))
        {
            remove_tree(path);
            continue;
        }
        for (const std::string& inner : list_directory(path))
        {
            if (!wanted(name + "/" + inner)) { remove_tree(path + "/" + inner); }
        }
        if (list_directory(path).empty()) { remove_tree(path); }
    }
}

std::string CorpusOutput::shown_partial() const
{
    const std::string shown = trimmed(shown_);
    const std::size_t slash = shown.rfind('/');
    return slash == std::string::npos ? "." + shown + ".partial"
                                      : shown.substr(0, slash + 1) + "." + shown.substr(slash + 1) + ".partial";
}

void CorpusOutput::lock()
{
    lock_.emplace(partial_ + "/" + lock_name, File::Mode::create);
    // A file system without locks loses the check, not the output: its other reasons are no conflict.
    VALIDATE(::flock(lock_->descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, UsageError,
             "another plimsoll-shard is writing '{}'. wait for it or choose another --out", shown_);
}

CorpusOutput::~CorpusOutput()
{
    if (published_ || kept_) { return; }
    try
    {
        remove_tree(partial_);
    }
    catch (const std::exception&)
    {
        // What stays is hidden, and the next run clears it.
    }
}

void CorpusOutput::publish(const std::string& work_file)
{
    remove_tree(partial_ + "/" + lock_name);
    sync_directory(partial_);
    crash_point("corpus_publish");
    if (!work_file.empty()) { remove_tree(partial_ + "/" + work_file); }
    if (path_exists(path_) && !list_directory(path_).empty())
    {
        if (!exchange_paths(partial_, path_))
        {
            // Between these two the old shards are gone and the new ones hidden: still never a mixture.
            remove_tree(path_);
            rename_path(partial_, path_);
        }
        published_ = true;
        remove_tree(partial_);
    }
    else { rename_path(partial_, path_); }
    published_ = true;
    sync_directory(parent_);
}

}  // namespace plimsoll
