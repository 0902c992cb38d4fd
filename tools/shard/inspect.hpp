#pragma once
/// The sub-commands that look at what is there.

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll
{

enum class OutputKind
{
    text,
    json
};

/// A shard file's header and counts, or a directory's manifest.
std::string inspect_text(const std::string& path, OutputKind kind);

/// The text of a document, counted from 0 over the shards of a directory in the order of its manifest; spans that the
/// loss mask excludes stand between double brackets. `tokenizer` where the shards' own name does not find it. @throws UsageError when there is no such document
std::string document_text(const std::string& path, std::int64_t number, const std::string& tokenizer = {});

/// Checks every byte of the shards of directories, the data of shards alone; the verdict. Progress goes to stderr.
std::string verify_text(const std::vector<std::string>& paths, OutputKind kind);

}  // namespace plimsoll
