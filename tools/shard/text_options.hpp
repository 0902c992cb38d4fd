#pragma once
/// Options about text input that the main command and train-bpe share.

#include <string>
#include <vector>

#include "base/cli.hpp"
#include "io/text_input.hpp"

namespace plimsoll
{

struct TextChoices
{
    std::string input_list;
    std::string format = "auto";
    std::string document = "file";
    std::string on_bad_record = "error";
};

constexpr double max_record_bytes_limit = 4294967295.0 - 4096;  ///< lines of JSON and strings of Parquet end at 4 GiB

void declare_inputs(OptionSet& options, std::vector<std::string>& inputs, TextChoices& choices);
void declare_documents(OptionSet& options, TextInputOptions& text, TextChoices& choices);

/// After parsing. A format that is none of text (chat) leaves `text.format` to the file names.
/// @throws UsageError without input
void set_text_options(const TextChoices& choices, std::vector<std::string>& inputs, TextInputOptions& text);

}  // namespace plimsoll
