#pragma once
/// Options of a tool: declared once, read from command line, environment, run file and default (in this order of
/// precedence), converted with units, bound to variables.
///
///     OptionSet options;
///     options.add_count("layout", "tp", config.layout.tp, "tensor parallel degree").flag("tp").range(1, 4096);
///     options.add_path("", "out", out, "directory of the shards").required();
///     std::vector<std::string> positionals = options.parse({"--tp", "2", "--out", "x"});
///
/// A key of a section is the option --section.key, the variable PLIMSOLL_SECTION_KEY and a line of a run file; an
/// option without section belongs to the tool alone and is read from the command line only. A flag is a second, short
/// name. Not thread-safe; lives in main() before any thread or rank starts.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"

namespace plimsoll
{

enum class ValueSource
{
    default_value,
    run_file,
    environment,
    command_line
};

/// Where a value came from, for messages and --print-config.
struct ValueOrigin
{
    ValueSource source = ValueSource::default_value;
    std::string where = "default";  ///< "default", "demo.ini:12", "PLIMSOLL_LAYOUT_TP", "--tp"
};

/// Whether the tool uses a value: files named by an unused one need not exist.
enum class Use
{
    needed,
    unused
};

/// What a setter gets.
struct OptionValue
{
    std::string text;                ///< the whole value
    std::vector<std::string> words;  ///< list items
    ValueOrigin origin;
    std::string directory;  ///< absolute; a relative path is relative to it
    Use use = Use::needed;
};

/// Stores a value and returns its canonical text: equal values have equal texts, and the text parses back to the value.
/// A list returns its words, each through quote_word().
using OptionSetter = std::function<std::string(const OptionValue&)>;

/// One declared option; the members are called in a chain at declaration.
class Option
{
  public:
    Option(std::string section, std::string key, std::string kind, std::string help);

    Option& flag(std::string name);                 ///< second name on the command line: "tp" is --tp
    Option& unit(std::string unit);                 ///< shown in --help: "sequences"
    Option& value_name(std::string name);           ///< shown in --help: "DIR"
    Option& shown_default(std::string text);        ///< shown in --help when the value itself says nothing: "all cores"
    Option& peers(std::vector<std::string> names);  ///< what other tools call it, without dashes
    Option& required();                             ///< OptionSet::check_required() throws when no source has it
    Option& no_default();  ///< the target's value means "not set": shown as such, not in snapshots
    Option& range(double low, double high = std::numeric_limits<double>::infinity());  ///< inclusive
    /// Only these canonical values work in this version; another known one is refused by name:
    /// "zero 3 is not available in this version (only zero 0). hint". An empty list: the option itself is refused.
    Option& built_only(std::vector<std::string> values, std::string hint = {});

    const std::string& section() const { return section_; }
    const std::string& key() const { return key_; }
    std::string name() const { return section_.empty() ? key_ : section_ + "." + key_; }
    const std::string& flag_name() const { return flag_; }
    /// Preferred name on the command line.
    std::string spelling() const { return "--" + (flag_.empty() ? name() : flag_); }
    std::string environment_name() const;
    const std::string& help_text() const { return help_; }
    const ValueOrigin& origin() const { return origin_; }
    bool is_set() const { return origin_.source != ValueSource::default_value; }
    /// Canonical text; words of a list quoted where needed.
    const std::string& value_text() const { return canonical_; }
    bool is_built() const { return !limited_ || !built_.empty(); }
    bool is_required() const { return required_; }
    std::string value_hint() const;    ///< "N", "DIR", "fp32|fp64", empty for a flag
    std::string default_hint() const;  ///< "default 1, sequences", "required", ...

  private:
    friend class OptionSet;
    void set(const OptionValue& value);
    void check_available() const;
    void check_range() const;
    std::string ini_text() const;  ///< the value as it stands in a run file

    std::string section_, key_, kind_, help_, flag_, unit_, value_name_, shown_default_;
    std::vector<std::string> peers_;
    bool required_ = false;
    bool is_list_ = false;
    bool is_flag_ = false;
    bool has_range_ = false;
    double low_ = 0, high_ = 0;
    bool limited_ = false;
    std::vector<std::string> built_;
    std::string built_hint_;
    std::vector<std::string> choices_;
    OptionSetter setter_;
    std::function<double()> numeric_;
    std::string canonical_;  ///< of a list: its words, quoted where needed
    ValueOrigin origin_;
};

/// One key whose value differs between two snapshots; a missing side reads "(not set)".
struct ConfigChange
{
    std::string key;  ///< "train.lr"
    std::string old_value;
    std::string new_value;
};

enum class RunFiles
{
    accepted,
    refused
};

class OptionSet
{
  public:
    explicit OptionSet(RunFiles files = RunFiles::accepted) : files_(files) {}
    OptionSet(const OptionSet&) = delete;
    OptionSet& operator=(const OptionSet&) = delete;

    // Declaration. The default is the target's value at this moment. An empty text or list means "not set".
    Option& add_text(std::string section, std::string key, std::string& target, std::string help);
    Option& add_texts(std::string section, std::string key, std::vector<std::string>& target, std::string help);
    Option& add_path(std::string section, std::string key, std::string& target, std::string help);  ///< made absolute
    /// List of files: globs expand sorted, a glob without match is an error; made absolute.
    Option& add_paths(std::string section, std::string key, std::vector<std::string>& target, std::string help);
    Option& add_count(std::string section, std::string key, std::int64_t& target, std::string help);
    Option& add_count(std::string section, std::string key, std::uint64_t& target, std::string help);
    Option& add_count(std::string section, std::string key, int& target, std::string help);
    Option& add_bytes(std::string section, std::string key, std::int64_t& target, std::string help);
    Option& add_duration(std::string section, std::string key, double& seconds, std::string help);
    Option& add_span(std::string section, std::string key, Span& target, std::string help);
    Option& add_number(std::string section, std::string key, double& target, std::string help);
    /// On the command line --key or --no-key; elsewhere key = true | false.
    Option& add_flag(std::string section, std::string key, bool& target, std::string help);
    Option& add_choice(std::string section, std::string key, std::string& target, std::vector<std::string> allowed,
                       std::string help);
    /// Anything else. `list`: every further word on the command line belongs to it.
    enum class Arity
    {
        one,
        list
    };
    Option& add_custom(std::string section, std::string key, Arity arity, std::string default_text, OptionSetter setter,
                       std::string help);

    /// Sections [prefix.NAME]: `declare` adds the keys of one NAME when a source mentions it.
    void add_named_sections(std::string prefix, std::function<void(OptionSet&, const std::string& name)> declare);
    /// Answers an unknown option or key: "bf16" -> "--precision bf16".
    void add_peer_hint(std::string name, std::string answer);
    /// Runs after all values are set, in the order added: values that depend on others.
    void on_parsed(std::function<void()> hook);
    /// For hooks: the value that an option without one takes ("runs/demo" from "run.name").
    void set_derived(const std::string& name, std::string value, std::string where);
    /// The sections that the tool uses, [data.NAME] through "data". Values of others are checked, but their files
    /// need not exist: plimsoll-shard reads a run file whose shards it is about to write. Without this call all are
    /// used.
    void use_sections(std::vector<std::string> sections);

    /// Reads all sources; `arguments` without the program's name. Returns the positional arguments.
    /// @throws UsageError, ConfigError
    std::vector<std::string> parse(const std::vector<std::string>& arguments);

    /// The option called "section.key", "key" or by its flag. @throws InternalError when not declared
    const Option& at(const std::string& name) const;
    Option& at(const std::string& name);
    bool is_set(const std::string& name) const { return at(name).is_set(); }
    /// @throws ConfigError "train.lr is missing (peak learning rate). set lr in [train] of the run file, or --lr"
    void require(const std::vector<std::string>& names) const;
    /// All that were declared required(). @throws UsageError, ConfigError
    void check_required() const;
    /// All options in order of declaration.
    std::vector<const Option*> all() const;
    const std::vector<std::string>& run_files() const { return run_files_; }

    /// Help text of the tool's own options and the given sections, at most 100 columns.
    std::string help(const std::vector<std::string>& sections) const;
    /// All values as INI, each with its origin in an aligned comment.
    std::string print_config() const;
    /// All sectioned values as INI with absolute paths; reads back to the same values whatever the environment.
    std::string snapshot() const;
    /// The reference of all sections as Markdown tables.
    std::string markdown() const;

  private:
    using NamedValues = std::map<std::string, OptionValue>;
    Option& declare(std::string section, std::string key, std::string kind, std::string help);
    Option* find(const std::string& name) const;
    void ensure_section(const std::string& section);
    std::vector<std::string> keys_of(const std::string& section) const;
    NamedValues read_command_line(const std::vector<std::string>& arguments, std::vector<std::string>& config_paths,
                                  std::vector<std::string>& positionals) const;
    NamedValues read_run_files();
    NamedValues read_environment() const;
    NamedValues merge(const std::vector<NamedValues>& sources) const;
    void check_names() const;
    void check_environment() const;
    [[noreturn]] void refuse_unknown_option(const std::string& name) const;
    [[noreturn]] void refuse_dashed_word(const std::string& word) const;
    [[noreturn]] void refuse_unknown_key(const std::string& section, const std::string& key,
                                         const std::string& where) const;
    std::string peer_answer(const std::string& name, ValueSource where) const;

    RunFiles files_;
    std::vector<std::unique_ptr<Option>> options_;
    std::vector<std::pair<std::string, std::function<void(OptionSet&, const std::string&)>>> named_sections_;
    std::vector<std::string> section_order_;
    bool all_used_ = true;
    std::vector<std::string> used_sections_;
    std::map<std::string, std::string> peer_hints_;
    std::vector<std::function<void()>> hooks_;
    std::vector<std::string> run_files_;
};

/// Key by key, in the new text's order; both texts are snapshots. @throws ConfigError on a broken one
std::vector<ConfigChange> compare_snapshots(const std::string& old_text, const std::string& new_text);

/// Absolute, lexically normal path; '~/' is the home directory.
std::string resolve_path(const std::string& path, const std::string& directory);
/// Sorted matches of a glob, or the path itself when it has no wildcard or exists as written.
/// @throws ConfigError when nothing matches
std::vector<std::string> expand_glob(const std::string& pattern);
/// The words of a value as absolute paths, globs expanded, each file once. A glob of an unused value may match nothing.
std::vector<std::string> expand_paths(const OptionValue& value);

}  // namespace plimsoll
