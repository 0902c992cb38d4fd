#include "io/text_input.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/text_input_json.hpp"
#include "io/text_input_lines.hpp"
#include "io/utf8.hpp"

namespace plimsoll
{

namespace
{

bool is_blank(const TextLine& line)
{
    return !line.too_long &&
           std::all_of(line.data, line.data + line.bytes, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

std::string_view without_carriage_return(std::string_view text)
{
    if (!text.empty() && text.back() == '\r') { text.remove_suffix(1); }
    return text;
}

}  // namespace

struct TextInput::Impl
{
    std::vector<InputFile> files;
    TextInputOptions options;
    std::function<void(const BadRecord&)> on_bad_record;
    TextInputCounts counts;

    std::size_t file_index = 0;
    bool file_open = false;
    std::int64_t bytes_before = 0;  ///< of the files that are finished
    double seconds_before = 0;      ///< reading them
    std::optional<LineReader> lines;
    TextFieldParser parser;
    std::string text;    ///< whole file, or paragraph
    std::string mended;  ///< text or record after replacement

    explicit Impl(std::string field) : parser(std::move(field)) {}

    const InputFile& file() const { return files[file_index]; }

    void bad(std::int64_t line, std::int64_t offset, std::string reason)
    {
        ++counts.bad_records;
        VALIDATE(options.on_bad_record == BadRecordPolicy::skip, FormatError,
                 "{}:{}: {}. mend it or use --on-bad-record skip", file().path, line, reason);
        BadRecord record;
        record.file = file().path;
        record.line = line;
        record.offset = offset;
        record.reason = std::move(reason);
        if (on_bad_record) { on_bad_record(record); }
    }

    std::string too_long() const { return fmt::format("longer than --max-record-bytes {}", options.max_record_bytes); }

    /// Valid UTF-8 of `raw`: itself, or its mended copy.
    std::string_view valid_text(std::string_view raw)
    {
        if (is_valid_utf8(raw)) { return raw; }
        mended.clear();
        mended.reserve(raw.size() + LineReader::padding);
        counts.invalid_utf8 += replace_invalid_utf8(raw, mended);
        return mended;
    }

    bool next_in_file(Document& document)
    {
        if (file().format == TextFormat::jsonl) { return next_json(document); }
        switch (options.document)
        {
            case DocumentUnit::line: return next_line(document);
            case DocumentUnit::blank_line: return next_paragraph(document);
            default: return next_file(document);
        }
    }

    bool next_json(Document& document)
    {
        TextLine line;
        while (lines->next(line))
        {
            if (line.too_long)
            {
                bad(line.number, line.offset, too_long());
                continue;
            }
            if (is_blank(line)) { continue; }
            std::int64_t bytes = line.bytes;
            char* json = line.data;
            if (!is_valid_utf8(std::string_view(json, static_cast<std::size_t>(bytes))))
            {
                valid_text(std::string_view(json, static_cast<std::size_t>(bytes)));
                mended.reserve(mended.size() + LineReader::padding);
                json = mended.data();
                bytes = static_cast<std::int64_t>(mended.size());
            }
            counts.lone_surrogates += replace_lone_surrogate_escapes(json, bytes);
            std::string reason = parser.parse(json, bytes, document.text);
            if (reason.empty())
            {
                document.line = line.number;
                document.offset = line.offset;
                return true;
            }
            if (!line.ended) { reason += ", in a last line without line feed (truncated file?)"; }
            bad(line.number, line.offset, std::move(reason));
        }
        return false;
    }

    bool next_line(Document& document)
    {
        TextLine line;
        while (lines->next(line))
        {
            if (line.too_long)
            {
                bad(line.number, line.offset, too_long());
                continue;
            }
            document.text =
                valid_text(without_carriage_return(std::string_view(line.data, static_cast<std::size_t>(line.bytes))));
            document.line = line.number;
            document.offset = line.offset;
            return true;
        }
        return false;
    }

    bool next_paragraph(Document& document)
    {
        while (true)
        {
            TextLine line;
            bool inside = false;
            bool oversized = false;
            text.clear();
            while (lines->next(line))
            {
                if (is_blank(line))
                {
                    if (inside) { break; }
                    continue;
                }
                if (!inside)
                {
                    document.line = line.number;
                    document.offset = line.offset;
                }
                else { text.push_back('\n'); }
                inside = true;
                oversized = oversized || line.too_long ||
                            static_cast<std::int64_t>(text.size()) + line.bytes > options.max_record_bytes;
                if (oversized) { text.clear(); }
                else { text.append(line.data, static_cast<std::size_t>(line.bytes)); }
            }
            if (!inside) { return false; }
            if (!oversized)
            {
                document.text = valid_text(without_carriage_return(text));
                return true;
            }
            bad(document.line, document.offset, too_long());
        }
    }

    bool next_file(Document& document)
    {
        if (file_open) { return false; }
        const std::int64_t bytes = file().bytes;
        if (bytes > options.max_record_bytes)
        {
            bad(1, 0, fmt::format("{} bytes are {}", bytes, too_long()));
            return false;
        }
        text.resize(static_cast<std::size_t>(bytes));
        const auto start = std::chrono::steady_clock::now();
        File(file().path, File::Mode::read).read_at(text.data(), bytes, 0);
        seconds_before += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::string_view content = text;
        if (content.substr(0, 3) == "\xEF\xBB\xBF") { content.remove_prefix(3); }
        document.text = valid_text(content);
        document.line = 1;
        document.offset = 0;
        return true;
    }

    bool by_lines() const { return file().format == TextFormat::jsonl || options.document != DocumentUnit::file; }

    void finish_file()
    {
        if (lines) { seconds_before += lines->read_seconds(); }
        lines.reset();
        bytes_before += file().bytes;
        counts.bytes = bytes_before;
        counts.read_seconds = seconds_before;
        ++counts.files;
        ++file_index;
        file_open = false;
    }
};

TextInput::TextInput(std::vector<InputFile> files, TextInputOptions options,
                     std::function<void(const BadRecord&)> on_bad_record)
    : impl_(std::make_unique<Impl>(options.text_field))
{
    EXPECT(options.max_record_bytes > 0);
    impl_->files = std::move(files);
    impl_->options = std::move(options);
    impl_->on_bad_record = std::move(on_bad_record);
}

TextInput::~TextInput() = default;

bool TextInput::next(Document& document)
{
    Impl& in = *impl_;
    while (in.file_index < in.files.size())
    {
        if (!in.file_open && in.by_lines()) { in.lines.emplace(in.file().path, in.options.max_record_bytes); }
        const bool found = in.next_in_file(document);
        in.file_open = true;
        if (found)
        {
            in.counts.bytes = in.bytes_before + (in.lines ? in.lines->bytes_read() : in.file().bytes);
            in.counts.read_seconds = in.seconds_before + (in.lines ? in.lines->read_seconds() : 0);
            return true;
        }
        in.finish_file();
    }
    return false;
}

const TextInputCounts& TextInput::counts() const { return impl_->counts; }

}  // namespace plimsoll
