#include "io/checkpoint_steps.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_format.hpp"
#include "io/file.hpp"

namespace plimsoll
{

namespace checkpoint
{

namespace
{

constexpr const char* step_prefix = "step_";
constexpr const char* temporary_prefix = ".tmp_";
constexpr const char* replaced_prefix = ".old_";

bool starts_with(const std::string& text, const std::string& prefix)
{
    return text.compare(0, prefix.size(), prefix) == 0;
}

// "step_00000020" -> 20, -1 for anything else.
std::int64_t parse_step_name(const std::string& name)
{
    if (!starts_with(name, step_prefix)) { return -1; }
    const std::string digits = name.substr(5);
    if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) { return -1; }
    const std::int64_t step = std::stoll(digits);
    return fmt::format("{}{:08d}", step_prefix, step) == name ? step : -1;
}

// ".old_step_00000020.<uuid>" -> 20, -1 for anything else.
std::int64_t parse_replaced_name(const std::string& name)
{
    if (!starts_with(name, replaced_prefix)) { return -1; }
    const std::size_t dot = name.rfind('.');
    return dot > 5 ? parse_step_name(name.substr(5, dot - 5)) : -1;
}

bool is_committed(const std::string& path)
{
    return file_size(path + "/" + commit_file) > 0;
}

std::int64_t sequence_of(const std::string& path)
{
    try
    {
        return read_manifest(path).sequence;
    }
    catch (const Error&)
    {
        return std::numeric_limits<std::int64_t>::max();
    }
}

std::string final_path(const std::string& root, std::int64_t step)
{
    return fmt::format("{}/{}{:08d}", root, step_prefix, step);
}

int lock_directory(const std::string& path)
{
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) { return -1; }
    // A file system without locks answers ENOLCK or the like: the lock of the run directory has to do there.
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    {
        ::close(descriptor);
        return -1;
    }
    return descriptor;
}

void remove_if_abandoned(const std::string& path)
{
    const int lock = lock_directory(path);
    if (lock < 0) { return; }
    remove_tree(path);
    ::close(lock);
}

void clean_replaced(const std::string& root, const std::string& name, std::int64_t step)
{
    const std::string aside = root + "/" + name;
    const std::string place = final_path(root, step);
    if (!path_exists(place) && is_committed(aside))
    {
        rename_path(aside, place);
        sync_directory(root);
    }
    else { remove_if_abandoned(aside); }
}

std::string read_latest(const std::string& root)
{
    const std::string path = root + "/" + latest_file;
    if (file_size(path) <= 0) { return ""; }
    std::string name = read_text_file(path);
    while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) { name.pop_back(); }
    return name;
}

}  // namespace

std::vector<StepEntry> list_steps(const std::string& root)
{
    std::vector<StepEntry> entries;
    if (!is_directory(root)) { return entries; }
    const std::vector<std::string> names = list_directory(root);
    for (const std::string& name : names)
    {
        std::int64_t step = parse_step_name(name);
        if (step < 0)
        {
            step = parse_replaced_name(name);
            if (step < 0 || path_exists(final_path(root, step))) { continue; }
        }
        const std::string path = root + "/" + name;
        if (!is_committed(path)) { continue; }
        StepEntry entry;
        entry.step = step;
        entry.path = path;
        entry.sequence = sequence_of(path);
        entries.push_back(entry);
    }
    // Copies from other directories may share a sequence: then `latest` decides, then the step.
    const std::string latest = read_latest(root);
    const auto rank = [&latest](const StepEntry& entry) {
        return std::make_tuple(entry.sequence, base_name(entry.path) == latest, entry.step);
    };
    std::sort(entries.begin(), entries.end(),
              [&rank](const StepEntry& a, const StepEntry& b) { return rank(a) > rank(b); });
    return entries;
}

void clean_root(const std::string& root)
{
    for (const std::string& name : list_directory(root))
    {
        if (starts_with(name, temporary_prefix)) { remove_if_abandoned(root + "/" + name); }
        const std::int64_t replaced = parse_replaced_name(name);
        if (replaced >= 0) { clean_replaced(root, name, replaced); }
    }
}

TemporaryStep::TemporaryStep(std::string root, std::int64_t step, std::string uuid)
    : root_(std::move(root)), step_(step), uuid_(std::move(uuid)),
      path_(fmt::format("{}/{}{}{:08d}.{}", root_, temporary_prefix, step_prefix, step_, uuid_))
{
    crash_point("checkpoint.temporary");
    make_directories(path_);
    lock_ = lock_directory(path_);
}

TemporaryStep::~TemporaryStep()
{
    if (owned_)
    {
        try
        {
            remove_tree(path_);
        }
        catch (const Error&)
        {
            // The next save tries again; an exception is under way already.
        }
    }
    if (lock_ >= 0) { ::close(lock_); }
}

std::string TemporaryStep::publish()
{
    const std::string place = final_path(root_, step_);
    const std::string aside = fmt::format("{}/{}{}{:08d}.{}", root_, replaced_prefix, step_prefix, step_, uuid_);
    std::string replaced;
    crash_point("checkpoint.directory_sync");
    sync_directory(path_);
    crash_point("checkpoint.publish");
    if (!path_exists(place)) { rename_path(path_, place); }
    else if (exchange_paths(path_, place)) { replaced = path_; }
    else
    {
        rename_path(place, aside);
        replaced = aside;
        crash_point("checkpoint.replace");
        rename_path(path_, place);
    }
    owned_ = false;
    crash_point("checkpoint.root_sync");
    sync_directory(root_);
    crash_point("checkpoint.latest");
    write_file_atomically(root_ + "/" + latest_file, base_name(place) + "\n");
    crash_point("checkpoint.cleanup");
    if (!replaced.empty()) { remove_tree(replaced); }
    crash_point("checkpoint.done");
    return place;
}

const std::vector<std::string>& crash_points()
{
    static const std::vector<std::string> names = {
        "checkpoint.temporary",  "checkpoint.create",         "checkpoint.block",   "checkpoint.tables",
        "checkpoint.data_sync",  "checkpoint.complete",       "checkpoint.file_sync", "checkpoint.manifest",
        "checkpoint.commit",     "checkpoint.directory_sync", "checkpoint.publish", "checkpoint.replace",
        "checkpoint.root_sync",  "checkpoint.latest",         "checkpoint.cleanup", "checkpoint.done",
        "file.written",          "file.synced",               "file.renamed",       "retention.rename",
        "retention.sync",        "retention.remove",          "retention.done"};
    return names;
}

}  // namespace checkpoint

using checkpoint::StepEntry;

std::string step_path(const std::string& root, std::int64_t step)
{
    const std::string place = checkpoint::final_path(root, step);
    if (path_exists(place) || !is_directory(root)) { return place; }
    for (const std::string& name : list_directory(root))
    {
        if (checkpoint::parse_replaced_name(name) == step) { return root + "/" + name; }
    }
    return place;
}

std::vector<std::int64_t> committed_steps(const std::string& root)
{
    std::set<std::int64_t> steps;
    for (const StepEntry& entry : checkpoint::list_steps(root)) { steps.insert(entry.step); }
    return std::vector<std::int64_t>(steps.begin(), steps.end());
}

void apply_retention(const std::string& root, std::int64_t keep_last)
{
    if (keep_last <= 0) { return; }
    std::int64_t kept = 0;
    bool has_valid = false;
    for (const StepEntry& entry : checkpoint::list_steps(root))
    {
        const bool is_newest_valid = !has_valid && verify_checkpoint(entry.path, VerifyLevel::size).faults.empty();
        has_valid = has_valid || is_newest_valid;
        if (kept < keep_last || is_newest_valid)
        {
            ++kept;
            continue;
        }
        // Renamed first: a half removed step must not look like a committed one.
        const std::string doomed =
            fmt::format("{}/{}{}.{}", root, checkpoint::temporary_prefix, checkpoint::base_name(entry.path), checkpoint::make_uuid());
        crash_point("retention.rename");
        rename_path(entry.path, doomed);
        crash_point("retention.sync");
        sync_directory(root);
        crash_point("retention.remove");
        remove_tree(doomed);
    }
    crash_point("retention.done");
}

std::string find_checkpoint(const std::string& dir, std::vector<std::string>* warnings)
{
    if (!is_directory(dir)) { return ""; }
    if (path_exists(dir + "/" + checkpoint::commit_file) || path_exists(dir + "/" + checkpoint::manifest_file)) { return dir; }
    const std::vector<StepEntry> entries = checkpoint::list_steps(dir);
    std::string newest_fault;
    for (const StepEntry& entry : entries)
    {
        const VerifyReport report = verify_checkpoint(entry.path, VerifyLevel::size);
        if (report.faults.empty()) { return entry.path; }
        if (newest_fault.empty()) { newest_fault = report.faults.front(); }
        if (warnings != nullptr)
        {
            warnings->push_back(fmt::format("{} (checkpoint skipped, the one before it is tried)", report.faults.front()));
        }
    }
    // A fresh start over damaged checkpoints would bury them: not silently.
    VALIDATE(entries.empty(), FormatError, "no valid checkpoint in '{}' ({})", dir, newest_fault);
    return is_directory(dir + "/ckpt") ? find_checkpoint(dir + "/ckpt", warnings) : "";
}

}  // namespace plimsoll
