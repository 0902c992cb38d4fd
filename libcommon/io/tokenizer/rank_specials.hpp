#pragma once
/// What a rank file does not say: its pattern and special tokens, by the name of the file, its digest or an option.

#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/rank_file.hpp"
#include "io/tokenizer/split_rules.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

struct RankSpecials
{
    const SplitRules* rules = nullptr;
    std::vector<AddedToken> specials;
};

/// `option`: what stands behind "x.tiktoken:pattern=", else empty. `file_name` without its folder.
/// @throws ConfigError where nothing says which pattern
RankSpecials find_rank_specials(const std::string& file_name, const std::string& option, const RankFile& ranks);

}  // namespace plimsoll
