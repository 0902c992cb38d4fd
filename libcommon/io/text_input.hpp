#pragma once
/// Documents out of files of text, in the order of the files.
///
/// jsonl: one JSON object in each line (lines end at LF alone: U+2028, U+2029 and NEL are text), the document is a
/// string field. txt: the document is the whole file, a line, or a paragraph between blank lines. Parquet: a document is a
/// row, its text a string column. jsonl and txt may be compressed (gzip, zstd), which their first bytes say. A byte order
/// mark at the start of a file is dropped; ill-formed UTF-8 and lone surrogates become U+FFFD and are counted; NUL is text.
///
/// BlockReader (text_input_blocks.hpp, one thread) cuts the files into blocks of whole records, BlockDocuments
/// (text_input_documents.hpp, any thread) makes the documents of a block. TextInput is both in one thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/record_options.hpp"

namespace plimsoll
{

enum class TextFormat
{
    by_name,  ///< .jsonl .ndjson, .txt .text .md, .parquet; a .gz or .zst behind it is passed over
    txt,
    jsonl,
    parquet,
};

enum class Compression
{
    none,
    gzip,
    zstd,
};

enum class DocumentUnit
{
    file,
    line,        ///< without its line end
    blank_line,  ///< lines up to a line of nothing but spaces, tabs and CR
};

enum class BadRecordPolicy
{
    error,    ///< the first one is thrown as FormatError "file:line: reason. hint"
    skip,     ///< each is reported to the callback and counted
    replace,  ///< the same, and a document of one U+FFFD keeps its place
};

struct TextInputOptions
{
    TextFormat format = TextFormat::by_name;
    DocumentUnit document = DocumentUnit::file;  ///< of txt
    std::string text_field = "text";  ///< of jsonl and Parquet; "a.b" is field b of object a where no field is "a.b"
    RecordOptions records;            ///< of jsonl: what a record is
    BadRecordPolicy on_bad_record = BadRecordPolicy::error;
    std::int64_t max_record_bytes = 256ll << 20;  ///< a longer line, paragraph, file or string is a bad record
    std::int64_t block_bytes = 1 << 20;           ///< of text that one thread has at a time; decides no output
};

struct BadRecord
{
    std::string file;
    std::int64_t line = 0;  ///< from 1; of Parquet the row
    std::int64_t offset =
        0;  ///< byte where the record starts in the file, of a compressed one in its text; of Parquet 0
    std::string reason;
};

struct TextInputCounts
{
    std::int64_t files = 0;
    std::int64_t bytes = 0;       ///< read from files
    std::int64_t text_bytes = 0;  ///< the same after decompression
    std::int64_t bad_records = 0;
    std::int64_t invalid_utf8 = 0;     ///< ill-formed sequences that became U+FFFD
    std::int64_t lone_surrogates = 0;  ///< escapes in jsonl that became U+FFFD
    double read_seconds = 0;           ///< spent on reading and decompressing
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
    std::vector<std::uint32_t> ids;  ///< tokenised already
    std::vector<std::uint8_t> mask;  ///< of `ids`: 1 where the token counts in the loss
    std::int64_t line = 0;
    std::int64_t offset = 0;
};

constexpr const char* standard_input = "-";

struct InputFile
{
    std::string path;
    std::int64_t bytes = 0;               ///< 0 of standard input
    TextFormat format = TextFormat::txt;  ///< never by_name
    Compression compression = Compression::none;
    std::int64_t modified_ns = 0;  ///< when, since 1970
    std::int64_t begin = 0;        ///< records that start in [begin, end) are read; always the whole of a file that
    std::int64_t end = -1;         ///< divisible() says no of. end -1: up to the end
};

/// Whether a record of the file can be found from any byte on: lines that are not compressed.
bool divisible(const InputFile& file, DocumentUnit unit);

/// Files of paths, glob patterns, "@LIST" (a file of such, one a line) and "-": in the order given, each pattern expanded
/// sorted; a file that turns up twice (same device and inode) counts once. Checks that each can be opened and is what its
/// name says.
/// @throws ConfigError for a pattern without a match, UsageError for a directory and an unknown ending
/// @throws IoError for a file that cannot be read
std::vector<InputFile> find_input_files(const std::vector<std::string>& patterns,
                                        TextFormat format = TextFormat::by_name);

/// All documents one after the other in one thread.
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
