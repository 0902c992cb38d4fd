#include "base/cli.hpp"

#include <boost/program_options.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <unistd.h>

#include "base/run_file.hpp"
#include "base/suggest.hpp"

namespace plimsoll
{

namespace
{

namespace po = boost::program_options;
using Values = std::vector<std::string>;

std::string bare_name(std::string text)
{
    text.erase(0, text.find_first_not_of('-') == std::string::npos ? text.size() : text.find_first_not_of('-'));
    return text.substr(0, text.find('='));
}

/// "tensor_model_parallel_size" and "tensor-model-parallel-size" are one name.
std::string peer_key(std::string name)
{
    for (char& c : name) { c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
    return name;
}

/// "-tp" is a mistyped option; "-1", "-.5" and "-" (standard input) are values.
bool is_dashed(const std::string& text)
{
    return text.size() > 1 && text[0] == '-' && std::isdigit(static_cast<unsigned char>(text[1])) == 0 &&
           text[1] != '.';
}

/// The names of an option on the command line.
Values names_of(const Option& option)
{
    Values names = {option.name()};
    if (!option.flag_name().empty() && option.flag_name() != option.name()) { names.push_back(option.flag_name()); }
    return names;
}

/// A suggestion is shown only when it is near enough to be meant.
bool is_near(const std::string& name, const std::string& candidate)
{
    return !candidate.empty() && edit_distance(name, candidate) <=
                                     std::max<int>(1, static_cast<int>(std::max(name.size(), candidate.size()) / 2));
}

}  // namespace

Option* OptionSet::find(const std::string& name) const
{
    for (const auto& option : options_)
    {
        if (option->name() == name || (!option->flag_.empty() && option->flag_ == name)) { return option.get(); }
    }
    return nullptr;
}

Option& OptionSet::at(const std::string& name)
{
    Option* option = find(name);
    if (option == nullptr) { throw InternalError(fmt::format("option '{}' is not declared", name)); }
    return *option;
}

const Option& OptionSet::at(const std::string& name) const { return const_cast<OptionSet*>(this)->at(name); }

std::vector<const Option*> OptionSet::all() const
{
    std::vector<const Option*> result;
    for (const auto& option : options_) { result.push_back(option.get()); }
    return result;
}

void OptionSet::add_named_sections(std::string prefix, std::function<void(OptionSet&, const std::string&)> declare)
{
    named_sections_.emplace_back(std::move(prefix), std::move(declare));
}

void OptionSet::add_peer_hint(std::string name, std::string answer)
{
    peer_hints_[peer_key(std::move(name))] = std::move(answer);
}

void OptionSet::on_parsed(std::function<void()> hook) { hooks_.push_back(std::move(hook)); }

void OptionSet::set_derived(const std::string& name, std::string value, std::string where)
{
    Option& option = at(name);
    option.canonical_ = std::move(value);
    option.origin_.where = std::move(where);
}

void OptionSet::use_sections(std::vector<std::string> sections)
{
    all_used_ = false;
    used_sections_ = std::move(sections);
}

void OptionSet::ensure_section(const std::string& section)
{
    if (std::find(section_order_.begin(), section_order_.end(), section) != section_order_.end()) { return; }
    const std::size_t dot = section.find('.');
    if (dot == std::string::npos || dot + 1 == section.size()) { return; }
    for (const auto& named : named_sections_)
    {
        if (section.compare(0, dot, named.first) == 0 && section.find('.', dot + 1) == std::string::npos)
        {
            named.second(*this, section.substr(dot + 1));
            return;
        }
    }
}

std::vector<std::string> OptionSet::keys_of(const std::string& section) const
{
    std::vector<std::string> keys;
    for (const auto& option : options_)
    {
        if (option->section_ == section) { keys.push_back(option->key_); }
    }
    return keys;
}

std::string OptionSet::peer_answer(const std::string& name, ValueSource where) const
{
    const std::string key = peer_key(name);
    const auto hint = peer_hints_.find(key);
    if (hint != peer_hints_.end()) { return hint->second; }
    for (const auto& option : options_)
    {
        if (std::find_if(option->peers_.begin(), option->peers_.end(),
                         [&](const std::string& peer) { return peer_key(peer) == key; }) == option->peers_.end())
        {
            continue;
        }
        if (where == ValueSource::command_line) { return option->spelling(); }
        return fmt::format("'{}' in [{}]", option->key_, option->section_);
    }
    return {};
}

void OptionSet::refuse_unknown_option(const std::string& name) const
{
    const std::string answer = peer_answer(name, ValueSource::command_line);
    VALIDATE(answer.empty(), UsageError, "unknown option '--{}' (another toolkit's name). use {}", name, answer);
    std::vector<std::string> names = {"help", "version", "print-config"};
    std::vector<std::string> in_sections;
    if (files_ == RunFiles::accepted) { names.push_back("config"); }
    for (const auto& option : options_)
    {
        if (!option->is_built()) { continue; }
        if (!option->flag_.empty()) { names.push_back(option->flag_); }
        names.push_back(option->name());
        if (option->key_ == name) { in_sections.push_back("--" + option->name()); }
    }
    VALIDATE(in_sections.empty(), UsageError,
             "unknown option '--{}' (a key of a section, without a short name). write {}", name,
             fmt::join(in_sections, " or "));
    const std::string nearest = nearest_name(name, names);
    throw UsageError(is_near(name, nearest) ? fmt::format("unknown option '--{}'. nearest: --{}", name, nearest)
                                            : fmt::format("unknown option '--{}'. see --help", name));
}

void OptionSet::refuse_dashed_word(const std::string& word) const
{
    const std::string name = bare_name(word);
    VALIDATE(find(name) == nullptr, UsageError, "unknown option '{}' (options start with two dashes). write --{}", word,
             name);
    refuse_unknown_option(name);
}

void OptionSet::refuse_unknown_key(const std::string& section, const std::string& key, const std::string& where) const
{
    if (std::find(section_order_.begin(), section_order_.end(), section) == section_order_.end() || section.empty())
    {
        std::vector<std::string> sections;
        for (const std::string& known : section_order_)
        {
            if (!known.empty()) { sections.push_back(known); }
        }
        const std::string nearest = nearest_name(section, sections);
        throw ConfigError(
            is_near(section, nearest)
                ? fmt::format("{}: unknown section [{}]. nearest: [{}]", where, section, nearest)
                : fmt::format("{}: unknown section [{}]. known: {}", where, section, fmt::join(sections, " ")));
    }
    const std::string answer = peer_answer(key, ValueSource::run_file);
    VALIDATE(answer.empty(), ConfigError, "{}: unknown key '{}' in [{}] (another toolkit's name). use {}", where, key,
             section, answer);
    for (const auto& option : options_)
    {
        VALIDATE(option->key_ != key || option->section_.empty(), ConfigError,
                 "{}: unknown key '{}' in [{}]. it belongs to [{}]", where, key, section, option->section_);
    }
    const std::vector<std::string> keys = keys_of(section);
    const std::string nearest = nearest_name(key, keys);
    throw ConfigError(
        is_near(key, nearest)
            ? fmt::format("{}: unknown key '{}' in [{}]. nearest: {}", where, key, section, nearest)
            : fmt::format("{}: unknown key '{}' in [{}]. known: {}", where, key, section, fmt::join(keys, " ")));
}

namespace
{

/// Flags take no value token: --x and --no-x become --x=true and --x=false before Boost sees them.
Values with_flag_values(const Values& arguments, const std::set<std::string>& flags)
{
    Values result;
    bool options_ended = false;
    for (const std::string& argument : arguments)
    {
        options_ended = options_ended || argument == "--";
        const std::string name = argument.rfind("--", 0) == 0 ? argument.substr(2) : "";
        if (options_ended || name.empty()) { result.push_back(argument); }
        else if (flags.count(name) != 0) { result.push_back(argument + "=true"); }
        else if (name.rfind("no-", 0) == 0 && flags.count(name.substr(3)) != 0)
        {
            result.push_back("--" + name.substr(3) + "=false");
        }
        else { result.push_back(argument); }
    }
    return result;
}

po::parsed_options parse_with_boost(const Values& arguments, const po::options_description& known)
{
    try
    {
        return po::command_line_parser(arguments)
            .options(known)
            .style(po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
                   po::command_line_style::long_allow_next)
            .allow_unregistered()
            .run();
    }
    catch (const po::error_with_option_name& error)
    {
        throw UsageError(fmt::format("--{} needs a value. see --help", bare_name(error.get_option_name())));
    }
}

}  // namespace

OptionSet::NamedValues OptionSet::read_command_line(const std::vector<std::string>& arguments,
                                                    std::vector<std::string>& config_paths,
                                                    std::vector<std::string>& positionals) const
{
    std::set<std::string> flags;
    po::options_description known;
    if (files_ == RunFiles::accepted) { known.add_options()("config", po::value<Values>()); }
    for (const auto& option : options_)
    {
        for (const std::string& name : names_of(*option))
        {
            auto* value = po::value<Values>();
            if (option->is_list_) { value->multitoken(); }
            known.add_options()(name.c_str(), value);
            if (option->is_flag_) { flags.insert(name); }
        }
    }
    NamedValues values;
    const std::string here = std::filesystem::current_path().string();
    for (const po::option& given : parse_with_boost(with_flag_values(arguments, flags), known).options)
    {
        if (given.position_key >= 0 || given.string_key.empty())
        {
            for (const std::string& word : given.value)
            {
                if (is_dashed(word)) { refuse_dashed_word(word); }
                positionals.push_back(word);
            }
            continue;
        }
        if (given.unregistered) { refuse_unknown_option(bare_name(given.string_key)); }
        if (given.string_key == "config")
        {
            VALIDATE(given.value[0].rfind("--", 0) != 0, UsageError, "--config needs a value. see --help");
            config_paths.insert(config_paths.end(), given.value.begin(), given.value.end());
            continue;
        }
        const Option& option = at(given.string_key);
        OptionValue& value = values[option.name()];
        const std::string spelling = "--" + given.string_key;
        // Boost takes the next option for the value of one that has none.
        VALIDATE(given.value.empty() || given.value[0].rfind("--", 0) != 0, UsageError, "{} needs a value. see --help",
                 spelling);
        VALIDATE(value.words.empty() || option.is_list_, UsageError, "{} is given twice ({} and {}). give it once",
                 spelling, value.text, fmt::join(given.value, " "));
        value.words.insert(value.words.end(), given.value.begin(), given.value.end());
        value.text = fmt::format("{}", fmt::join(value.words, " "));
        value.origin.source = ValueSource::command_line;
        value.origin.where = spelling;
        value.directory = here;
    }
    return values;
}

OptionSet::NamedValues OptionSet::read_run_files()
{
    NamedValues values;
    for (const std::string& path : run_files_)
    {
        for (const RunFileEntry& entry : read_run_file(path))
        {
            ensure_section(entry.section);
            const Option* option = find(entry.section + "." + entry.key);
            if (option == nullptr || option->section_ != entry.section)
            {
                refuse_unknown_key(entry.section, entry.key, entry.where());
            }
            OptionValue value;
            value.text = entry.text;
            value.words = entry.words;
            value.origin.source = ValueSource::run_file;
            value.origin.where = entry.where();
            value.directory = entry.directory;
            values[option->name()] = value;
        }
    }
    return values;
}

OptionSet::NamedValues OptionSet::read_environment() const
{
    NamedValues values;
    for (const auto& option : options_)
    {
        const std::string name = option->environment_name();
        const char* text = name.empty() ? nullptr : std::getenv(name.c_str());
        if (text == nullptr) { continue; }
        OptionValue value;
        value.text = text;
        value.words = option->is_list_ ? split_words(text, name, Variables::keep) : Values{text};
        value.origin.source = ValueSource::environment;
        value.origin.where = name;
        value.directory = std::filesystem::current_path().string();
        values[option->name()] = value;
    }
    return values;
}

void OptionSet::check_environment() const
{
    std::vector<std::string> names;
    std::set<std::string> prefixes;
    for (const auto& option : options_)
    {
        if (option->section_.empty()) { continue; }
        names.push_back(option->environment_name());
        prefixes.insert(names.back().substr(0, names.back().size() - option->key_.size()));
    }
    for (char** at = ::environ; at != nullptr && *at != nullptr; ++at)
    {
        const std::string entry = *at;
        const std::string name = entry.substr(0, entry.find('='));
        const bool ours = std::any_of(prefixes.begin(), prefixes.end(),
                                      [&](const std::string& prefix) { return name.rfind(prefix, 0) == 0; });
        if (!ours) { continue; }
        VALIDATE(std::find(names.begin(), names.end(), name) != names.end(), ConfigError,
                 "environment variable {} names no key of a run file. nearest: {}", name, nearest_name(name, names));
    }
}

void OptionSet::check_names() const
{
    std::set<std::string> taken = {"help", "version", "print-config", "config"};
    for (const auto& option : options_)
    {
        for (const std::string& name : names_of(*option))
        {
            if (!taken.insert(name).second)
            {
                throw InternalError(fmt::format("option '--{}' is declared twice", name));
            }
        }
    }
}

/// Boost keeps the first stored value of a name, so sources are stored in the order of precedence; whoever brings a
/// name first is its origin.
OptionSet::NamedValues OptionSet::merge(const std::vector<NamedValues>& sources) const
{
    po::options_description known;
    for (const auto& option : options_) { known.add_options()(option->name().c_str(), po::value<Values>()); }
    po::variables_map merged;
    NamedValues result;
    for (const NamedValues& source : sources)
    {
        po::parsed_options parsed(&known);
        for (const auto& entry : source)
        {
            if (merged.count(entry.first) == 0) { result[entry.first] = entry.second; }
            parsed.options.emplace_back(entry.first, entry.second.words.empty() ? Values{""} : entry.second.words);
        }
        po::store(parsed, merged);
    }
    return result;
}

std::vector<std::string> OptionSet::parse(const std::vector<std::string>& arguments)
{
    // --data.kjv.weight declares [data.kjv] like a run file's section does.
    for (const std::string& argument : arguments)
    {
        const std::string name = bare_name(argument);
        const std::size_t dot = name.rfind('.');
        if (argument.rfind("--", 0) == 0 && dot != std::string::npos) { ensure_section(name.substr(0, dot)); }
    }
    check_names();
    std::vector<std::string> positionals;
    const NamedValues command_line = read_command_line(arguments, run_files_, positionals);
    const NamedValues files = read_run_files();
    check_environment();
    const NamedValues merged = merge({command_line, read_environment(), files});
    for (const auto& option : options_)
    {
        const auto found = merged.find(option->name());
        if (found == merged.end()) { continue; }
        OptionValue value = found->second;
        const std::string section = option->section_.substr(0, option->section_.find('.'));
        const bool used = all_used_ || section.empty() ||
                          std::find(used_sections_.begin(), used_sections_.end(), section) != used_sections_.end();
        value.use = used ? Use::needed : Use::unused;
        option->set(value);
    }
    for (const auto& hook : hooks_) { hook(); }
    return positionals;
}

namespace
{

/// "config.json" of "config.json (HF style), a folder with one, ...".
std::string first_phrase(const std::string& text)
{
    std::size_t end = text.size();
    for (const char* stop : {". ", "; ", " (", ", "}) { end = std::min(end, text.find(stop)); }
    return text.substr(0, end);
}

}  // namespace

void OptionSet::require(const std::vector<std::string>& names) const
{
    for (const std::string& name : names)
    {
        const Option& option = at(name);
        if (option.is_set()) { continue; }
        const std::string what = first_phrase(option.help_);
        VALIDATE(!option.section_.empty(), UsageError, "{} is missing ({})", option.spelling(), what);
        throw ConfigError(fmt::format("{} is missing ({}). set {} in [{}] of the run file, or {}", option.name(), what,
                                      option.key_, option.section_, option.spelling()));
    }
}

void OptionSet::check_required() const
{
    for (const auto& option : options_)
    {
        if (option->required_) { require({option->name()}); }
    }
}

}  // namespace plimsoll
