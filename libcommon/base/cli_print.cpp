#include <algorithm>

#include "base/cli.hpp"
#include "base/run_file.hpp"
#include "base/text_layout.hpp"

namespace plimsoll
{

namespace
{

constexpr std::size_t help_width = 100;
constexpr std::size_t help_column = 32;

std::string help_row(const Option& option)
{
    std::string left = option.spelling();
    const std::string value = option.value_hint();
    if (!value.empty()) { left += " " + value; }
    std::string text = option.help_text();
    const std::string hint = option.default_hint();
    if (!hint.empty()) { text += " [" + hint + "]"; }
    return two_columns(left, text, help_column, help_width);
}

}  // namespace

std::string OptionSet::help(const std::vector<std::string>& sections) const
{
    std::string result;
    const auto print_section = [&](const std::string& section, const std::string& title)
    {
        std::string rows;
        for (const auto& option : options_)
        {
            if (option->section_ == section && option->is_built()) { rows += help_row(*option); }
        }
        if (!rows.empty()) { result += "\n" + title + "\n" + rows; }
    };
    print_section("", "options");
    for (const std::string& section : sections) { print_section(section, "[" + section + "]"); }
    return result;
}

std::string OptionSet::print_config() const
{
    struct Row
    {
        std::string left;
        std::string origin;
    };
    std::vector<Row> rows;
    std::size_t width = 0;
    for (const std::string& section : section_order_)
    {
        const std::size_t title = rows.size();
        rows.push_back({section.empty() ? "# options of this tool alone" : "[" + section + "]", ""});
        for (const auto& option : options_)
        {
            if (option->section_ != section || (!option->is_built() && !option->is_set())) { continue; }
            const bool commented = section.empty() || option->canonical_.empty();
            Row row;
            row.left = fmt::format("{}{} = {}", commented ? "# " : "", option->key_, option->ini_text());
            row.origin = option->canonical_.empty() ? "not set" : option->origin_.where;
            if (row.left.size() <= 60) { width = std::max(width, row.left.size()); }
            rows.push_back(std::move(row));
        }
        if (rows.size() == title + 1) { rows.pop_back(); }
    }
    std::string result;
    for (const Row& row : rows)
    {
        if (row.origin.empty()) { result += (result.empty() ? "" : "\n") + row.left + "\n"; }
        else { result += fmt::format("{:<{}}  # {}\n", row.left, width, row.origin); }
    }
    return result;
}

std::string OptionSet::snapshot() const
{
    std::string result = "# every value of this run, resolved; written by Plimsoll\n";
    for (const std::string& section : section_order_)
    {
        if (section.empty()) { continue; }
        std::string rows;
        for (const auto& option : options_)
        {
            if (option->section_ != section || option->canonical_.empty()) { continue; }
            std::string value = option->ini_text();
            if (option->is_list_)
            {
                const std::vector<std::string> words = split_words(value, "snapshot", Variables::keep);
                value.clear();
                for (const std::string& word : words) { value += (value.empty() ? "" : "\n    ") + quote_word(word); }
            }
            rows += fmt::format("{} = {}\n", option->key_, value);
        }
        if (!rows.empty()) { result += fmt::format("\n[{}]\n{}", section, rows); }
    }
    return result;
}

std::string OptionSet::markdown() const
{
    std::string result;
    for (const std::string& section : section_order_)
    {
        if (section.empty()) { continue; }
        result += fmt::format("\n## [{}]\n\n| key | short | value | meaning |\n|---|---|---|---|\n", section);
        for (const auto& option : options_)
        {
            if (option->section_ != section) { continue; }
            std::string meaning = option->help_;
            const std::string hint = option->is_built() ? option->default_hint() : "not available in this version";
            if (!hint.empty()) { meaning += " (" + hint + ")"; }
            std::string value = option->is_flag_ ? "true\\|false" : option->value_hint();
            for (std::size_t at = value.find('|'); at != std::string::npos && !option->is_flag_;
                 at = value.find('|', at + 2))
            {
                value.insert(at, "\\");
            }
            const std::string flag = option->flag_.empty() ? "" : "`--" + option->flag_ + "`";
            result += fmt::format("| `{}` | {} | {} | {} |\n", option->key_, flag, value, meaning);
        }
    }
    return result;
}

std::vector<ConfigChange> compare_snapshots(const std::string& old_text, const std::string& new_text)
{
    const char* const absent = "(not set)";
    const std::vector<RunFileEntry> before = parse_run_file(old_text, "run.ini", "/");
    const std::vector<RunFileEntry> after = parse_run_file(new_text, "new run.ini", "/");
    const auto find = [](const std::vector<RunFileEntry>& entries, const RunFileEntry& wanted)
    {
        return std::find_if(entries.begin(), entries.end(),
                            [&](const RunFileEntry& entry)
                            { return entry.section == wanted.section && entry.key == wanted.key; });
    };
    std::vector<ConfigChange> changes;
    const auto add = [&](const RunFileEntry& entry, std::string old_value, std::string new_value)
    {
        ConfigChange change;
        change.key = entry.section + "." + entry.key;
        change.old_value = std::move(old_value);
        change.new_value = std::move(new_value);
        changes.push_back(std::move(change));
    };
    for (const RunFileEntry& entry : after)
    {
        const auto old = find(before, entry);
        if (old == before.end()) { add(entry, absent, entry.text); }
        else if (old->words != entry.words) { add(entry, old->text, entry.text); }
    }
    for (const RunFileEntry& entry : before)
    {
        if (find(after, entry) == after.end()) { add(entry, entry.text, absent); }
    }
    return changes;
}

}  // namespace plimsoll
