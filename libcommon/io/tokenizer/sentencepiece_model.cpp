#include "io/tokenizer/sentencepiece_model.hpp"

#include <cmath>
#include <unordered_set>

#include "base/error.hpp"
#include "io/tokenizer/protobuf_reader.hpp"
#include "io/utf8.hpp"

namespace plimsoll
{

namespace
{

SentencePiece parse_piece(std::string_view message)
{
    SentencePiece piece;
    for (ProtobufReader reader(message); reader.next();)
    {
        if (reader.field() == 1) { piece.text = reader.bytes(); }
        else if (reader.field() == 2) { piece.score = reader.float32(); }
        else if (reader.field() == 3)
        {
            const std::uint64_t type = reader.number();
            VALIDATE(type >= 1 && type <= 6, FormatError, "type {} of a piece is not known", type);
            piece.type = static_cast<SentencePiece::Type>(type);
        }
    }
    return piece;
}

void parse_trainer(std::string_view message, SentencepieceModel& model)
{
    for (ProtobufReader reader(message); reader.next();)
    {
        switch (reader.field())
        {
            case 3:
                VALIDATE(reader.number() >= 1 && reader.number() <= 4, FormatError, "model type {} is not known",
                         reader.number());
                model.kind = static_cast<SentencepieceModel::Kind>(reader.number());
                break;
            case 24: model.rules.whitespace_as_suffix = reader.flag(); break;
            case 35: model.byte_fallback = reader.flag(); break;
            case 44: model.unknown_surface = reader.bytes(); break;
            case 47: model.eos_piece = reader.bytes().empty() ? "</s>" : reader.bytes(); break;
            default: break;
        }
    }
}

void parse_rules(std::string_view message, SentencepieceRules& rules)
{
    for (ProtobufReader reader(message); reader.next();)
    {
        switch (reader.field())
        {
            case 2: rules.charsmap = Charsmap(reader.bytes()); break;
            case 3: rules.add_dummy_prefix = reader.flag(); break;
            case 4: rules.remove_extra_whitespaces = reader.flag(); break;
            case 5: rules.escape_whitespaces = reader.flag(); break;
            default: break;
        }
    }
}

/// "<0x0A>" -> 10; -1 for another text.
int byte_of_piece(const std::string& text)
{
    if (text.size() != 6 || text.compare(0, 3, "<0x") != 0 || text[5] != '>') { return -1; }
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    const int high = digit(text[3]), low = digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void check_piece(const SentencePiece& piece, std::size_t id)
{
    VALIDATE(!piece.text.empty(), FormatError, "piece {} is empty", id);
    VALIDATE(piece.text.find('\0') == std::string::npos && is_valid_utf8(piece.text), FormatError,
             "piece {} is not text (UTF-8 without NUL)", id);
    VALIDATE(std::isfinite(piece.score), FormatError, "score of piece {} is not a finite number", id);
}

void check_bytes(SentencepieceModel& model)
{
    bool found[256] = {};
    for (std::uint32_t id = 0; id < model.pieces.size(); ++id)
    {
        if (model.pieces[id].type != SentencePiece::Type::byte) { continue; }
        const int byte = byte_of_piece(model.pieces[id].text);
        VALIDATE(byte >= 0 && model.byte_fallback, FormatError,
                 "byte piece {} is not expected ('{}', byte_fallback {})", id, model.pieces[id].text,
                 model.byte_fallback ? "on" : "off");
        model.byte_ids[byte] = id;
        found[byte] = true;
    }
    for (int byte = 0; byte < 256 && model.byte_fallback; ++byte)
    {
        VALIDATE(found[byte], FormatError, "byte_fallback is on, but the piece of byte 0x{:02X} is missing", byte);
    }
}

void check_model(SentencepieceModel& model)
{
    VALIDATE(!model.pieces.empty(), FormatError, "no pieces (not a sentencepiece model?)");
    std::unordered_set<std::string_view> vocabulary, reserved;
    int num_unknown = 0;
    for (std::uint32_t id = 0; id < model.pieces.size(); ++id)
    {
        const SentencePiece& piece = model.pieces[id];
        check_piece(piece, id);
        VALIDATE((piece.matches_text() ? vocabulary : reserved).insert(piece.text).second, FormatError,
                 "piece {} is there twice", id);
        if (piece.type == SentencePiece::Type::unknown)
        {
            model.unknown_id = id;
            ++num_unknown;
        }
    }
    VALIDATE(num_unknown == 1, FormatError, "{} pieces of type unknown (one is needed)", num_unknown);
    VALIDATE(!vocabulary.empty(), FormatError, "no piece of the vocabulary is text");
    check_bytes(model);
}

}  // namespace

SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name)
{
    try
    {
        SentencepieceModel model;
        for (ProtobufReader reader(bytes); reader.next();)
        {
            switch (reader.field())
            {
                case 1: model.pieces.push_back(parse_piece(reader.bytes())); break;
                case 2: parse_trainer(reader.bytes(), model); break;
                case 3: parse_rules(reader.bytes(), model.rules); break;
                case 5: parse_rules(reader.bytes(), model.denormalizer); break;
                default: break;
            }
        }
        model.has_denormalizer = !model.denormalizer.charsmap.empty();
        check_model(model);
        return model;
    }
    catch (Error& error)
    {
        error.add_context(name);
        throw;
    }
}

}  // namespace plimsoll
