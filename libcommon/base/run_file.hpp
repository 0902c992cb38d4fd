#pragma once
/// Reader of run files (INI). Knows the syntax, not the keys: OptionSet checks those.
///
///     include = base.ini          # before the first section; relative to this file; own keys win over included ones
///     [section]
///     key = value words           # '#' and ';' start a comment at line start or after a space
///         more words              # an indented line continues the value above
///     path = "a b/#1" $HOME/x     # quotes protect spaces and comment signs; single quotes also protect '$'
///
/// $VAR and ${VAR} expand; an unset one is an error. CRLF and a UTF-8 byte order mark are accepted. A key twice in one
/// file is an error that names both lines.

#include <string>
#include <vector>

namespace plimsoll
{

struct RunFileEntry
{
    std::string section;
    std::string key;
    std::string text;                ///< the whole value, quotes removed, variables expanded
    std::vector<std::string> words;  ///< the same split at unquoted spaces
    std::string file;                ///< as the user wrote it
    std::string directory;           ///< absolute; base of relative paths
    int line = 0;
    std::string where() const { return file + ":" + std::to_string(line); }
};

/// Entries of `path` and of the files that it includes, in file order, included ones first: later ones win.
/// @throws ConfigError: missing or unreadable file, bad line, unset variable, repeated key, circular include
std::vector<RunFileEntry> read_run_file(const std::string& path);

/// The same from text, without includes; `origin` stands in messages, `directory` is the base of relative paths.
std::vector<RunFileEntry> parse_run_file(const std::string& text, const std::string& origin,
                                         const std::string& directory);

enum class Variables
{
    expand,
    keep
};

/// Splits at unquoted spaces, as in a run file's value, without comments.
std::vector<std::string> split_words(const std::string& text, const std::string& origin, Variables variables);

/// Text that reads back as one word: quoted where it holds spaces, quotes, '#', ';' or '$'.
std::string quote_word(const std::string& word);

}  // namespace plimsoll
