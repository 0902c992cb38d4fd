#pragma once
/// Which stretch of the input a part has.

#include <cstdint>
#include <string>
#include <vector>

#include "io/text_input.hpp"

namespace plimsoll
{

/// Files and ranges of part `part` of `num`: records that start in its share of all bytes, in order. Where records cannot be
/// found from any byte on (compressed, Parquet, paragraphs, whole files) a file belongs to the part that has its first byte.
std::vector<InputFile> files_of_part(const std::vector<InputFile>& files, DocumentUnit unit, std::int64_t part,
                                     std::int64_t num);

/// Bytes of the files that the ranges hold. Of standard input none.
std::int64_t bytes_of_ranges(const std::vector<InputFile>& files);

/// sha256 over paths and sizes.
std::string inputs_fingerprint(const std::vector<InputFile>& files);

}  // namespace plimsoll
