#include <algorithm>

#include "base/error.hpp"
#include "io/token_shard.hpp"

namespace plimsoll
{

namespace
{

/// The first document of a file that ends behind `token`: empty ones before it do not.
std::int64_t document_at(const TokenFile& file, std::int64_t token)
{
    std::int64_t low = 0, high = file.info().num_documents;
    while (low < high)
    {
        const std::int64_t middle = low + (high - low) / 2;
        std::uint64_t end = 0;
        file.read_document_ends(middle, 1, &end);
        if (static_cast<std::int64_t>(end) > token) { high = middle; }
        else { low = middle + 1; }
    }
    return low;
}

}  // namespace

std::vector<DocumentPiece> document_pieces(const TokenFile& file, std::int64_t begin, std::int64_t num)
{
    constexpr std::int64_t at_once = 64;
    std::vector<DocumentPiece> pieces;
    const std::int64_t stop = begin + num;
    std::vector<std::uint64_t> ends(static_cast<std::size_t>(at_once));
    std::int64_t document = num > 0 ? document_at(file, begin) : 0;
    while (begin < stop)
    {
        const std::int64_t here = std::min(at_once, file.info().num_documents - document);
        VALIDATE(here > 0, FormatError, "{}: its documents end before its tokens", file.info().path);
        file.read_document_ends(document, here, ends.data());
        for (std::int64_t i = 0; i < here && begin < stop; ++i)
        {
            const auto end = static_cast<std::int64_t>(ends[static_cast<std::size_t>(i)]);
            if (end <= begin) { continue; }  // empty
            DocumentPiece piece;
            piece.document = document + i;
            piece.begin = begin;
            piece.end = std::min(end, stop);
            piece.ends_here = end <= stop;
            pieces.push_back(piece);
            begin = piece.end;
        }
        document += here;
    }
    return pieces;
}

}  // namespace plimsoll
