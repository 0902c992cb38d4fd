#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/token_formats/megatron.hpp"
#include "io/token_formats/megatron_layout.hpp"

namespace plimsoll
{

MegatronWriter::MegatronWriter(const std::string& prefix, std::int64_t vocab, std::int64_t max_sequence_tokens)
    : vocab_(vocab),
      width_(vocab <= 65536 ? 2 : 4),
      max_sequence_tokens_(max_sequence_tokens),
      bin_(prefix + ".bin"),
      index_(prefix + ".idx"),
      lengths_(prefix + ".lengths", AppendFile::Kind::spill),
      documents_(prefix + ".documents", AppendFile::Kind::spill)
{
    EXPECT(vocab > 0 && max_sequence_tokens > 0 && max_sequence_tokens <= 2147483647);
    VALIDATE(vocab <= (1ll << 31), ConfigError,
             "a vocabulary of {} does not fit Megatron's format (its widest type for ids is i32)", vocab);
    const std::int64_t first = 0;
    documents_.append(&first, 8);
}

void MegatronWriter::add(const TokenDocument& document)
{
    check_ids(document.ids, vocab_, num_documents_);
    const auto num = static_cast<std::int64_t>(document.ids.size());
    for (std::int64_t done = 0; done < num; done += max_sequence_tokens_)
    {
        const auto length = static_cast<std::int32_t>(std::min(max_sequence_tokens_, num - done));
        lengths_.append(&length, 4);
        ++num_sequences_;
    }
    bin_.append_ids(document.ids.data(), num, width_);
    documents_.append(&num_sequences_, 8);
    ++num_documents_;
}

void MegatronWriter::finish()
{
    const std::int64_t version = 1;
    const std::uint8_t code = width_ == 2 ? megatron_layout::code_u16 : megatron_layout::code_i32;
    const std::int64_t boundaries = num_documents_ + 1;
    index_.append(megatron_layout::magic, megatron_layout::magic_bytes);
    index_.append(&version, 8);
    index_.append(&code, 1);
    index_.append(&num_sequences_, 8);
    index_.append(&boundaries, 8);
    index_.append_all(lengths_);
    std::int64_t pointer = 0;
    std::vector<std::int32_t> lengths(32768);
    for (std::int64_t done = 0; done < num_sequences_;)
    {
        const std::int64_t num = std::min(static_cast<std::int64_t>(lengths.size()), num_sequences_ - done);
        lengths_.read_at(lengths.data(), num * 4, done * 4);
        for (std::int64_t i = 0; i < num; ++i)
        {
            index_.append(&pointer, 8);
            pointer += lengths[static_cast<std::size_t>(i)] * width_;
        }
        done += num;
    }
    ENSURE(pointer == bin_.bytes());
    index_.append_all(documents_);
    bin_.seal();
    index_.seal();
    // The index last: it is what readers look for.
    bin_.publish();
    index_.publish();
    sync_directory(parent_of(index_.path()));
}

}  // namespace plimsoll
