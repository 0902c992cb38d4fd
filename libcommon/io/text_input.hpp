#pragma once
/// Documents out of text files, one after the other, with memory for one document only.
///
/// jsonl: one JSON object in each line (lines end at LF alone: U+2028, U+2029 and NEL are text), the document is a
/// string field. txt: the document is the whole file, a line, or a paragraph between blank lines. A byte order mark
/// at the start of a file is dropped; ill-formed UTF-8 and lone surrogates become U+FFFD and are counted; NUL is
/// text.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

enum class TextFormat
{
    by_name,  ///< .jsonl .ndjson or .txt .text .md
    txt,
    jsonl,
};

enum class DocumentUnit
{
    file,
    line,        ///< without its line end
    blank_line,  ///< lines up to a line of nothing but spaces, tabs and CR
};

enum class BadRecordPolicy
{
    error,  ///< the first one is thrown as FormatError "file:line: reason. hint"
    skip,   ///< each is reported to the callback and counted
};

struct TextInputOptions
{
    TextFormat format = TextFormat::by_name;
    DocumentUnit document = DocumentUnit::file;  ///< of txt
    std::string text_field = "text";             ///< of jsonl
    BadRecordPolicy on_bad_record = BadRecordPolicy::error;
    std::int64_t max_record_bytes = 256ll << 20;  ///< a longer line, paragraph or file is a bad record
};

struct BadRecord
{
    std::string file;
    std::int64_t line = 0;    ///< from 1
    std::int64_t offset = 0;  ///< byte where the record starts in the file
    std::string reason;
};

struct TextInputCounts
{
    std::int64_t files = 0;
    std::int64_t bytes = 0;  ///< read from files
    std::int64_t bad_records = 0;
    std::int64_t invalid_utf8 = 0;     ///< ill-formed sequences that became U+FFFD
    std::int64_t lone_surrogates = 0;  ///< escapes in jsonl that became U+FFFD
    double read_seconds = 0;           ///< spent waiting for the file system
};

/// A stretch of a document that is made of several (a prompt and its completion, the messages of a chat).
struct DocumentPart
{
    enum class Kind
    {
        text,
        special  ///< content of a special token: becomes its id, whatever SpecialInText says
    };
    Kind kind = Kind::text;
    std::string_view text;
    bool trainable = true;  ///< its tokens count in the loss
};

/// One document; its views hold until the next call of next(). Exactly one of `text`, `parts` and `ids` is used.
struct Document
{
    std::string_view text;
    std::vector<DocumentPart> parts;
    std::vector<std::uint32_t> ids;   ///< tokenised already
    std::vector<std::uint8_t> mask;   ///< of `ids`: 1 where the token counts in the loss
    std::int64_t line = 0;
    std::int64_t offset = 0;
};

struct InputFile
{
    std::string path;
    std::int64_t bytes = 0;
    TextFormat format = TextFormat::txt;  ///< never by_name
};

/// Files of paths and glob patterns: patterns in the order given, each expanded sorted; a file that turns up twice
/// (same device and inode) counts once. Checks that each can be opened and is plain text.
/// @throws ConfigError for a pattern without a match, UsageError for a directory, an unknown ending or a format not
/// available yet
/// @throws IoError for a file that cannot be read
std::vector<InputFile> find_input_files(const std::vector<std::string>& patterns,
                                        TextFormat format = TextFormat::by_name);

class TextInput
{
  public:
    TextInput(std::vector<InputFile> files, TextInputOptions options,
              std::function<void(const BadRecord&)> on_bad_record);
    ~TextInput();
    TextInput(const TextInput&) = delete;
    TextInput& operator=(const TextInput&) = delete;

    /// The next document, empty ones included; false after the last.
    /// @throws FormatError for a bad record under BadRecordPolicy::error, IoError when reading fails
    bool next(Document& document);
    const TextInputCounts& counts() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
