#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/cli.hpp"
#include "base/run_file.hpp"
#include "base/suggest.hpp"

namespace plimsoll
{

Option::Option(std::string section, std::string key, std::string kind, std::string help)
    : section_(std::move(section)),
      key_(std::move(key)),
      kind_(std::move(kind)),
      help_(std::move(help))
{
}

Option& Option::flag(std::string name)
{
    flag_ = std::move(name);
    return *this;
}

Option& Option::unit(std::string unit)
{
    unit_ = std::move(unit);
    return *this;
}

Option& Option::value_name(std::string name)
{
    value_name_ = std::move(name);
    return *this;
}

Option& Option::shown_default(std::string text)
{
    shown_default_ = std::move(text);
    return *this;
}

Option& Option::peers(std::vector<std::string> names)
{
    peers_ = std::move(names);
    return *this;
}

Option& Option::required()
{
    required_ = true;
    return no_default();
}

Option& Option::no_default()
{
    canonical_.clear();
    return *this;
}

Option& Option::range(double low, double high)
{
    has_range_ = true;
    low_ = low;
    high_ = high;
    return *this;
}

Option& Option::built_only(std::vector<std::string> values, std::string hint)
{
    limited_ = true;
    built_ = std::move(values);
    built_hint_ = std::move(hint);
    return *this;
}

std::string Option::environment_name() const
{
    if (section_.empty()) { return {}; }
    std::string result = "PLIMSOLL_";
    for (const char c : section_ + "_" + key_)
    {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
        result += plain ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : '_';
    }
    return result;
}

void Option::set(const OptionValue& value)
{
    const bool in_file = value.origin.source == ValueSource::run_file;
    const std::string context = in_file ? value.origin.where + ": " + key_ : value.origin.where;
    // "key =" takes back what an included file set: the value stays unset.
    if (value.text.empty() && canonical_.empty()) { return; }
    origin_ = value.origin;
    with_context(context,
                 [&]
                 {
                     canonical_ = setter_(value);
                     check_range();
                 });
    if (value.origin.source == ValueSource::command_line) { check_available(); }
    else
    {
        with_context(value.origin.where, [&] { check_available(); });
    }
}

void Option::check_range() const
{
    if (!has_range_ || !numeric_) { return; }
    const double value = numeric_();
    VALIDATE(value >= low_, ConfigError, "{} is too small (at least {})", canonical_, number_text(low_));
    VALIDATE(value <= high_, ConfigError, "{} is too large (at most {})", canonical_, number_text(high_));
}

void Option::check_available() const
{
    if (!limited_ || std::find(built_.begin(), built_.end(), canonical_) != built_.end()) { return; }
    const std::string hint = built_hint_.empty() ? "" : ". " + built_hint_;
    if (built_.empty())
    {
        const std::string where = section_.empty() ? key_ : fmt::format("{} in [{}]", key_, section_);
        throw ConfigError(fmt::format("{} is not available in this version{}", where, hint));
    }
    throw ConfigError(fmt::format("{0} {1} is not available in this version (only {0} {2}){3}", key_, canonical_,
                                  fmt::join(built_, " or "), hint));
}

std::string Option::ini_text() const
{
    if (is_list_ || canonical_.empty()) { return canonical_; }
    // A value of one line needs no quotes for its single spaces: "100M tokens" stays as it is.
    const bool plain = canonical_.find_first_of("\t\"'#;$") == std::string::npos &&
                       canonical_.find("  ") == std::string::npos && canonical_.front() != ' ' &&
                       canonical_.back() != ' ';
    return plain ? canonical_ : quote_word(canonical_);
}

std::string Option::value_hint() const
{
    if (is_flag_) { return {}; }
    if (!value_name_.empty()) { return value_name_; }
    if (choices_.empty()) { return kind_; }
    std::vector<std::string> shown;
    for (const std::string& choice : choices_)
    {
        if (!limited_ || std::find(built_.begin(), built_.end(), choice) != built_.end()) { shown.push_back(choice); }
    }
    return fmt::format("{}", fmt::join(shown, "|"));
}

std::string Option::default_hint() const
{
    std::vector<std::string> parts;
    if (!unit_.empty()) { parts.push_back(unit_); }
    if (limited_ && built_.size() == 1 && choices_.empty())
    {
        parts.push_back("only " + built_[0] + " in this version");
    }
    else if (required_) { parts.push_back("required"); }
    else if (!shown_default_.empty()) { parts.push_back("default " + shown_default_); }
    else if (!is_flag_ && !canonical_.empty() && !is_set()) { parts.push_back("default " + canonical_); }
    return fmt::format("{}", fmt::join(parts, "; "));
}

// ---------------------------------------------------------------------------------------------- typed declarations

Option& OptionSet::declare(std::string section, std::string key, std::string kind, std::string help)
{
    options_.push_back(std::make_unique<Option>(section, std::move(key), std::move(kind), std::move(help)));
    if (std::find(section_order_.begin(), section_order_.end(), section) == section_order_.end())
    {
        // [data.kjv] stands behind [data] and its other named sections.
        const auto family = [](const std::string& name) { return name.substr(0, name.find('.')); };
        const auto last = std::find_if(section_order_.rbegin(), section_order_.rend(),
                                       [&](const std::string& known) { return family(known) == family(section); });
        section_order_.insert(last == section_order_.rend() ? section_order_.end() : last.base(), section);
    }
    return *options_.back();
}

namespace
{

std::string quoted(const std::vector<std::string>& words)
{
    std::vector<std::string> result;
    for (const std::string& word : words) { result.push_back(quote_word(word)); }
    return fmt::format("{}", fmt::join(result, " "));
}

/// Parses into `target`; the canonical text is made by `text`.
template<class T, class Parse, class Text>
OptionSetter scalar_setter(T& target, Parse parse, Text text)
{
    return [&target, parse, text](const OptionValue& value)
    {
        target = parse(value.text);
        return std::string(text(target));
    };
}

template<class T>
OptionSetter count_setter(T& target)
{
    return [&target](const OptionValue& value)
    {
        const std::int64_t count = parse_count(value.text);
        VALIDATE(count >= 0, ConfigError, "{} is negative", value.text);
        VALIDATE(static_cast<double>(count) <= static_cast<double>(std::numeric_limits<T>::max()), ConfigError,
                 "{} is too large (at most {})", value.text, std::numeric_limits<T>::max());
        target = static_cast<T>(count);
        return std::to_string(target);
    };
}

}  // namespace

Option& OptionSet::add_text(std::string section, std::string key, std::string& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "TEXT", std::move(help));
    option.canonical_ = target;
    option.setter_ = [&target](const OptionValue& value) { return target = value.text; };
    return option;
}

Option& OptionSet::add_texts(std::string section, std::string key, std::vector<std::string>& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "TEXT ...", std::move(help));
    option.is_list_ = true;
    option.canonical_ = quoted(target);
    option.setter_ = [&target](const OptionValue& value)
    {
        target = value.words;
        return quoted(target);
    };
    return option;
}

Option& OptionSet::add_path(std::string section, std::string key, std::string& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "PATH", std::move(help));
    option.canonical_ = target;
    option.setter_ = [&target](const OptionValue& value)
    { return target = value.text.empty() ? "" : resolve_path(value.text, value.directory); };
    return option;
}

Option& OptionSet::add_paths(std::string section, std::string key, std::vector<std::string>& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "FILE ...", std::move(help));
    option.is_list_ = true;
    option.canonical_ = quoted(target);
    option.setter_ = [&target](const OptionValue& value)
    {
        target = expand_paths(value);
        return quoted(target);
    };
    return option;
}

Option& OptionSet::add_count(std::string section, std::string key, std::int64_t& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "N", std::move(help));
    option.canonical_ = std::to_string(target);
    option.setter_ = count_setter(target);
    option.numeric_ = [&target] { return static_cast<double>(target); };
    return option;
}

Option& OptionSet::add_count(std::string section, std::string key, std::uint64_t& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "N", std::move(help));
    option.canonical_ = std::to_string(target);
    option.setter_ = count_setter(target);
    option.numeric_ = [&target] { return static_cast<double>(target); };
    return option;
}

Option& OptionSet::add_count(std::string section, std::string key, int& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "N", std::move(help));
    option.canonical_ = std::to_string(target);
    option.setter_ = count_setter(target);
    option.numeric_ = [&target] { return static_cast<double>(target); };
    return option;
}

Option& OptionSet::add_bytes(std::string section, std::string key, std::int64_t& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "BYTES", std::move(help));
    option.canonical_ = bytes_text(target);
    option.setter_ = scalar_setter(target, parse_bytes, bytes_text);
    option.numeric_ = [&target] { return static_cast<double>(target); };
    return option;
}

Option& OptionSet::add_duration(std::string section, std::string key, double& seconds, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "TIME", std::move(help));
    option.canonical_ = duration_text(seconds);
    option.setter_ = scalar_setter(seconds, parse_duration, duration_text);
    option.numeric_ = [&seconds] { return seconds; };
    return option;
}

Option& OptionSet::add_span(std::string section, std::string key, Span& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "SPAN", std::move(help));
    option.canonical_ = span_text(target);
    option.setter_ = scalar_setter(target, parse_span, span_text);
    option.numeric_ = [&target] { return target.amount; };
    return option;
}

Option& OptionSet::add_number(std::string section, std::string key, double& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "X", std::move(help));
    option.canonical_ = number_text(target);
    option.setter_ = scalar_setter(target, parse_number, number_text);
    option.numeric_ = [&target] { return target; };
    return option;
}

Option& OptionSet::add_flag(std::string section, std::string key, bool& target, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "", std::move(help));
    option.is_flag_ = true;
    const auto text = [](bool on) { return on ? "true" : "false"; };
    option.canonical_ = text(target);
    option.setter_ = scalar_setter(target, parse_bool, text);
    return option;
}

Option& OptionSet::add_choice(std::string section, std::string key, std::string& target,
                              std::vector<std::string> allowed, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "", std::move(help));
    option.canonical_ = target;
    option.choices_ = std::move(allowed);
    option.setter_ = [&target, &option](const OptionValue& value)
    {
        const std::vector<std::string>& choices = option.choices_;
        VALIDATE(std::find(choices.begin(), choices.end(), value.text) != choices.end(), ConfigError,
                 "'{}' is not one of {}. nearest: {}", value.text, fmt::join(choices, " "),
                 nearest_name(value.text, choices));
        return target = value.text;
    };
    return option;
}

Option& OptionSet::add_custom(std::string section, std::string key, Arity arity, std::string default_text,
                              OptionSetter setter, std::string help)
{
    Option& option = declare(std::move(section), std::move(key), "VALUE", std::move(help));
    option.is_list_ = arity == Arity::list;
    option.canonical_ = std::move(default_text);
    option.setter_ = std::move(setter);
    return option;
}

}  // namespace plimsoll
