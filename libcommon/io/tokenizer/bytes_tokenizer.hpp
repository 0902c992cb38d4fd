#pragma once
/// Every byte is its own id, so that any text has an exact encoding and a decoding that gives the same bytes back.

#include <memory>

#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

std::unique_ptr<Tokenizer> make_bytes_tokenizer();

}  // namespace plimsoll
