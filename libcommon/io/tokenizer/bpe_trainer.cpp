#include "io/tokenizer/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "io/tokenizer/byte_letters.hpp"
#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

using Pair = std::uint64_t;  ///< left id << 32 | right id: compares as (left, right)

Pair pair_of(std::uint32_t left, std::uint32_t right) { return static_cast<Pair>(left) << 32 | right; }

struct PairHash
{
    std::size_t operator()(Pair pair) const
    {
        pair *= 0x9E3779B97F4A7C15U;
        return pair ^ pair >> 32;
    }
};

/// A pair and the pieces in which it came up, as far as they were known when it was queued. One pair may be queued several
/// times, each time with other pieces.
struct Candidate
{
    std::int64_t count = 0;
    Pair pair = 0;
    std::uint64_t serial = 0;
    std::vector<std::uint32_t> pieces;  ///< rising
};

struct Later
{
    bool operator()(const Candidate& a, const Candidate& b) const
    {
        if (a.count != b.count) { return a.count < b.count; }
        if (a.pair != b.pair) { return a.pair > b.pair; }
        return a.serial > b.serial;
    }
};

class BpeLearner
{
  public:
    BpeLearner(const PieceCounts& counts, const BpeTrainerOptions& options) : options_(options)
    {
        add_base_tokens();
        add_pieces(counts);
    }

    LearnedBpe learn(const BpeTrainerObserver& observer)
    {
        queue_new_pairs();
        while (static_cast<std::int64_t>(result_.tokens.size()) < options_.vocab && !queue_.empty())
        {
            Candidate top = take_top();
            const std::int64_t count = pair_counts_[top.pair];
            if (top.count != count)
            {
                top.count = count;
                queue(std::move(top));
                continue;
            }
            if (count < 1 || count < options_.min_frequency) { break; }
            merge(top);
            if (observer) { observer(static_cast<std::int64_t>(result_.tokens.size())); }
        }
        drop_repeated_merges();
        return std::move(result_);
    }

  private:
    void add_base_tokens()
    {
        for (const std::string& special : options_.special_tokens)
        {
            ids_.emplace(special, static_cast<std::uint32_t>(result_.tokens.size()));
            result_.tokens.push_back(special);
        }
        result_.special_tokens = options_.special_tokens;
        std::array<std::uint32_t, 256> bytes{};
        std::iota(bytes.begin(), bytes.end(), 0U);
        std::sort(bytes.begin(), bytes.end(),
                  [](std::uint32_t a, std::uint32_t b) {
                      return letter_of_byte(static_cast<std::uint8_t>(a)) <
                             letter_of_byte(static_cast<std::uint8_t>(b));
                  });
        for (const std::uint32_t byte : bytes)
        {
            byte_ids_[byte] = static_cast<std::uint32_t>(result_.tokens.size());
            const std::string token = byte_character(static_cast<std::uint8_t>(byte));
            ids_.emplace(token, byte_ids_[byte]);
            result_.tokens.push_back(token);
        }
    }

    void add_pieces(const PieceCounts& counts)
    {
        const std::vector<PieceCounts::Row> rows = counts.sorted();
        begins_.reserve(rows.size() + 1);
        sizes_.reserve(rows.size());
        piece_counts_.reserve(rows.size());
        for (const PieceCounts::Row& row : rows)
        {
            const auto piece = static_cast<std::uint32_t>(piece_counts_.size());
            begins_.push_back(symbols_.size());
            sizes_.push_back(static_cast<std::uint32_t>(row.piece.size()));
            piece_counts_.push_back(row.count);
            for (const char c : row.piece) { symbols_.push_back(byte_ids_[static_cast<unsigned char>(c)]); }
            const std::uint32_t* const symbols = symbols_.data() + begins_.back();
            for (std::size_t i = 1; i < row.piece.size(); ++i)
            {
                change(pair_of(symbols[i - 1], symbols[i]), 1, piece);
            }
        }
    }

    /// One more (or one less) of the pair in the piece.
    void change(Pair pair, int by, std::uint32_t piece)
    {
        pair_counts_[pair] += by * piece_counts_[piece];
        if (by < 0) { return; }
        std::vector<std::uint32_t>& pieces = new_pairs_[pair];
        if (pieces.empty() || pieces.back() != piece) { pieces.push_back(piece); }
    }

    void queue_new_pairs()
    {
        for (auto& [pair, pieces] : new_pairs_)
        {
            const std::int64_t count = pair_counts_[pair];
            if (count > 0) { queue({count, pair, serial_++, std::move(pieces)}); }
        }
        new_pairs_.clear();
    }

    void queue(Candidate candidate)
    {
        queue_.push_back(std::move(candidate));
        std::push_heap(queue_.begin(), queue_.end(), Later());
    }

    Candidate take_top()
    {
        std::pop_heap(queue_.begin(), queue_.end(), Later());
        Candidate top = std::move(queue_.back());
        queue_.pop_back();
        return top;
    }

    void merge(const Candidate& top)
    {
        const auto left = static_cast<std::uint32_t>(top.pair >> 32);
        const auto right = static_cast<std::uint32_t>(top.pair);
        const std::string text = result_.tokens[left] + result_.tokens[right];
        const auto found = ids_.emplace(text, static_cast<std::uint32_t>(result_.tokens.size()));
        if (found.second) { result_.tokens.push_back(text); }
        result_.merges.emplace_back(left, right);
        result_.last_frequency = top.count;
        for (const std::uint32_t piece : top.pieces) { merge_in(piece, left, right, found.first->second); }
        queue_new_pairs();
    }

    /// The count of the merged pair itself stays as it is: it is not met again, unless its tokens come up anew.
    void merge_in(std::uint32_t piece, std::uint32_t left, std::uint32_t right, std::uint32_t merged)
    {
        std::uint32_t* const symbols = symbols_.data() + begins_[piece];
        const std::uint32_t size = sizes_[piece];
        std::uint32_t out = 0;
        for (std::uint32_t i = 0; i < size; ++out)
        {
            if (i + 1 == size || symbols[i] != left || symbols[i + 1] != right)
            {
                symbols[out] = symbols[i++];
                continue;
            }
            if (out > 0)
            {
                change(pair_of(symbols[out - 1], left), -1, piece);
                change(pair_of(symbols[out - 1], merged), 1, piece);
            }
            symbols[out] = merged;
            i += 2;
            if (i < size)
            {
                change(pair_of(right, symbols[i]), -1, piece);
                change(pair_of(merged, symbols[i]), 1, piece);
            }
        }
        sizes_[piece] = out;
    }

    /// A pair that was merged again later (its tokens came up anew) counts by its last place, as in a table by pairs.
    void drop_repeated_merges()
    {
        std::unordered_map<Pair, std::size_t, PairHash> last;
        for (std::size_t i = 0; i < result_.merges.size(); ++i)
        {
            last[pair_of(result_.merges[i].first, result_.merges[i].second)] = i;
        }
        std::size_t out = 0;
        for (std::size_t i = 0; i < result_.merges.size(); ++i)
        {
            if (last[pair_of(result_.merges[i].first, result_.merges[i].second)] == i)
            {
                result_.merges[out++] = result_.merges[i];
            }
        }
        result_.merges.resize(out);
    }

    const BpeTrainerOptions& options_;
    LearnedBpe result_;
    std::unordered_map<std::string, std::uint32_t> ids_;
    std::array<std::uint32_t, 256> byte_ids_{};
    std::vector<std::uint32_t> symbols_;  ///< of all pieces, each in a place of its own that it shrinks in
    std::vector<std::uint64_t> begins_;
    std::vector<std::uint32_t> sizes_;
    std::vector<std::int64_t> piece_counts_;
    std::unordered_map<Pair, std::int64_t, PairHash> pair_counts_;
    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> new_pairs_;
    std::vector<Candidate> queue_;
    std::uint64_t serial_ = 0;
};

}  // namespace

void check_bpe_options(const BpeTrainerOptions& options)
{
    std::set<std::string> seen;
    for (const std::string& special : options.special_tokens)
    {
        VALIDATE(!special.empty(), UsageError, "a special token is empty. give each of --special a text");
        VALIDATE(special.size() > 1, UsageError, "special token '{}' is a single byte. choose a longer one", special);
        VALIDATE(seen.insert(special).second, UsageError, "special token '{}' is given twice", special);
    }
    const auto base = static_cast<std::int64_t>(seen.size()) + 256;
    VALIDATE(options.vocab >= base, UsageError,
             "--vocab {} is too small ({} special token{} and 256 bytes). at least {}", options.vocab, seen.size(),
             seen.size() == 1 ? "" : "s", base);
}

LearnedBpe learn_bpe(const PieceCounts& counts, const BpeTrainerOptions& options, const BpeTrainerObserver& observer)
{
    check_bpe_options(options);
    return BpeLearner(counts, options).learn(observer);
}

std::string byte_character(std::uint8_t byte)
{
    std::string character;
    append_utf8(letter_of_byte(byte), character);
    return character;
}

}  // namespace plimsoll
