#include "text_options.hpp"

#include "base/error.hpp"

namespace plimsoll
{

void declare_inputs(OptionSet& options, std::vector<std::string>& inputs, TextChoices& choices)
{
    options
        .add_texts("", "input", inputs,
                   "jsonl, txt (.gz, .zst too), Parquet: files, patterns ('text/*.jsonl.zst', in quotes or not), @LIST "
                   "of such, - for standard input")
        .value_name("FILE ...")
        .peers({"input-prefix", "files"});
    options.add_text("", "input-list", choices.input_list, "the same as --input @FILE: one path or pattern a line")
        .value_name("FILE");
}

void declare_documents(OptionSet& options, TextInputOptions& text, TextChoices& choices)
{
    options.add_choice("", "document", choices.document, {"file", "line", "blank-line"},
                       "what a document is in txt: the file, a line, lines up to a blank one");
    options
        .add_text("", "text-field", text.text_field,
                  "field of jsonl, column of Parquet that holds the text; a.b is field b of a")
        .value_name("NAME")
        .peers({"json-keys"});
}

void set_text_options(const TextChoices& choices, std::vector<std::string>& inputs, TextInputOptions& text)
{
    if (!choices.input_list.empty()) { inputs.push_back("@" + choices.input_list); }
    VALIDATE(!inputs.empty(), UsageError, "--input is missing (text files and patterns)");
    text.format = choices.format == "txt"       ? TextFormat::txt
                  : choices.format == "jsonl"   ? TextFormat::jsonl
                  : choices.format == "parquet" ? TextFormat::parquet
                                                : TextFormat::by_name;
    text.document = choices.document == "line"         ? DocumentUnit::line
                    : choices.document == "blank-line" ? DocumentUnit::blank_line
                                                       : DocumentUnit::file;
    text.on_bad_record = choices.on_bad_record == "skip"      ? BadRecordPolicy::skip
                         : choices.on_bad_record == "replace" ? BadRecordPolicy::replace
                                                              : BadRecordPolicy::error;
}

}  // namespace plimsoll
