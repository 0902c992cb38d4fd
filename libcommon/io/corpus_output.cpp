#include "io/corpus_output.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>

#include "base/error.hpp"
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

bool is_shard_file(const std::string& name)
{
    return name.size() > 9 && name.compare(0, 6, "shard_") == 0 && name.compare(name.size() - 3, 3, ".h5") == 0;
}

/// Name of an entry that plimsoll-shard did not write; empty when there is none.
std::string foreign_entry(const std::string& directory)
{
    for (const std::string& name : list_directory(directory))
    {
        const bool ours = is_shard_file(name) || name == corpus_manifest_name || name == "bad_records.jsonl";
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
    while (path_.size() > 1 && path_.back() == '/') { path_.pop_back(); }
    const std::size_t slash = path_.rfind('/');
    parent_ = slash == std::string::npos ? "." : path_.substr(0, std::max<std::size_t>(slash, 1));
    partial_ = parent_ + "/." + path_.substr(slash == std::string::npos ? 0 : slash + 1) + ".partial";
    check_corpus_output(shown_, existing);
    make_directories(partial_);
    lock();
    for (const std::string& name : list_directory(partial_))
    {
        if (name != lock_name) { remove_tree(partial_ + "/" + name); }
    }
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
    if (published_) { return; }
    try
    {
        remove_tree(partial_);
    }
    catch (const std::exception&)
    {
        // What stays is hidden, and the next run clears it.
    }
}

void CorpusOutput::publish()
{
    remove_tree(partial_ + "/" + lock_name);
    sync_directory(partial_);
    crash_point("corpus_publish");
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
