#include "io/tokenizer/tokenizer_json.hpp"

#include <simdjson.h>

#include <string_view>
#include <unordered_map>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/file.hpp"

namespace plimsoll
{

namespace
{

using JsonElement = simdjson::dom::element;
using JsonObject = simdjson::dom::object;
using TokenIds = std::unordered_map<std::string_view, std::uint32_t>;

// simdjson's own get_bool() and the like leave no name of the key behind.
class JsonFields
{
  public:
    JsonFields(JsonObject object, std::string where) : object_(object), where_(std::move(where)) {}

    // Missing and null are the same here, as for HF.
    std::optional<JsonElement> find(std::string_view key) const
    {
        JsonElement value;
        if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) { return std::nullopt; }
        return value;
    }

    template<class T>
    T get(std::string_view key, T fallback, std::string_view kind) const
    {
        const std::optional<JsonElement> value = find(key);
        if (!value) { return fallback; }
        T result{};
        VALIDATE(value->get(result) == simdjson::SUCCESS, FormatError, "{}{} is not {}", where_, key, kind);
        return result;
    }

    bool flag(std::string_view key, bool fallback) const { return get<bool>(key, fallback, "true or false"); }
    std::string text(std::string_view key) const
    {
        return std::string(get<std::string_view>(key, std::string_view(), "a string"));
    }

    nlohmann::json part(std::string_view key) const
    {
        const std::optional<JsonElement> value = find(key);
        return value ? nlohmann::json::parse(simdjson::minify(*value)) : nlohmann::json();
    }

    const std::string& where() const { return where_; }

  private:
    JsonObject object_;
    std::string where_;
};

std::uint32_t id_of(JsonElement value, std::string_view token)
{
    std::uint64_t id = 0;
    VALIDATE(value.get(id) == simdjson::SUCCESS && id <= 0xFFFFFFFEU, FormatError,
             "id of token '{}' is not a number from 0 to 2^32-2", token);
    return static_cast<std::uint32_t>(id);
}

std::vector<AddedToken> read_added_tokens(const JsonFields& top)
{
    std::vector<AddedToken> result;
    const std::optional<JsonElement> list = top.find("added_tokens");
    if (!list) { return result; }
    simdjson::dom::array array;
    VALIDATE(list->get(array) == simdjson::SUCCESS, FormatError, "added_tokens is not a list");
    for (const JsonElement element : array)
    {
        JsonObject object;
        VALIDATE(element.get(object) == simdjson::SUCCESS, FormatError, "added_tokens[{}] is not an object",
                 result.size());
        const JsonFields fields(object, fmt::format("added_tokens[{}].", result.size()));
        AddedToken token;
        token.content = fields.text("content");
        const std::optional<JsonElement> id = fields.find("id");
        VALIDATE(id, FormatError, "added_tokens[{}] has no id", result.size());
        token.id = id_of(*id, token.content);
        token.special = fields.flag("special", false);
        token.single_word = fields.flag("single_word", false);
        token.lstrip = fields.flag("lstrip", false);
        token.rstrip = fields.flag("rstrip", false);
        token.normalized = fields.flag("normalized", !token.special);
        result.push_back(std::move(token));
    }
    return result;
}

void read_vocab(const JsonFields& model, TokenizerModel& result, TokenIds& ids)
{
    const std::optional<JsonElement> vocab = model.find("vocab");
    JsonObject object;
    VALIDATE(vocab && vocab->get(object) == simdjson::SUCCESS, FormatError, "model.vocab is not an object");
    ids.reserve(object.size());
    result.vocab.reserve(object.size());
    for (const auto field : object)
    {
        const std::uint32_t id = id_of(field.value, field.key);
        VALIDATE(ids.emplace(field.key, id).second, FormatError, "token '{}' stands twice in model.vocab", field.key);
        result.vocab.emplace_back(std::string(field.key), id);
    }
    // As many ids as tokens and each below some bound is the usual case; a map would cost as much as all the rest.
    std::uint32_t highest = 0;
    for (const auto& [token, id] : result.vocab) { highest = std::max(highest, id); }
    VALIDATE(highest < 0x10000000U, FormatError, "id {} is too high (at most 2^28 - 1)", highest);
    std::vector<bool> used(static_cast<std::size_t>(highest) + 1);
    for (const auto& [token, id] : result.vocab)
    {
        VALIDATE(!used[id], FormatError, "id {} stands twice in model.vocab (the second is '{}')", id, token);
        used[id] = true;
    }
}

// The two tokens of "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_parts(JsonElement element, std::int64_t index)
{
    std::string_view text;
    if (element.get(text) == simdjson::SUCCESS)
    {
        const std::size_t space = text.find(' ');
        VALIDATE(space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos, FormatError,
                 "merge {} '{}' is not two tokens with a space between them", index, text);
        return {text.substr(0, space), text.substr(space + 1)};
    }
    simdjson::dom::array array;
    std::string_view left;
    std::string_view right;
    const bool is_pair = element.get(array) == simdjson::SUCCESS && array.size() == 2 &&
                         array.at(0).get(left) == simdjson::SUCCESS && array.at(1).get(right) == simdjson::SUCCESS;
    VALIDATE(is_pair, FormatError, "merge {} is neither \"a b\" nor [\"a\", \"b\"]", index);
    return {left, right};
}

void read_merges(const JsonFields& model, TokenizerModel& result, const TokenIds& ids)
{
    const std::optional<JsonElement> merges = model.find("merges");
    simdjson::dom::array array;
    VALIDATE(merges && merges->get(array) == simdjson::SUCCESS, FormatError, "model.merges is not a list");
    result.merges.reserve(array.size());
    const std::size_t prefix = result.continuing_subword_prefix.size();
    std::string merged;
    std::int64_t index = 0;
    const auto find = [&](std::string_view token)
    {
        const auto found = ids.find(token);
        VALIDATE(found != ids.end(), FormatError, "merge {} needs token '{}', which is not in model.vocab", index,
                 token);
        return found->second;
    };
    for (const JsonElement element : array)
    {
        const auto [left, right] = merge_parts(element, index);
        const TokenizerMerge merge{find(left), find(right), 0};
        merged.assign(left).append(right.substr(std::min(prefix, right.size())));
        result.merges.push_back({merge.left, merge.right, find(merged)});
        ++index;
    }
}

void read_pieces(const JsonFields& model, TokenizerModel& result)
{
    const std::optional<JsonElement> vocab = model.find("vocab");
    simdjson::dom::array array;
    VALIDATE(vocab && vocab->get(array) == simdjson::SUCCESS, FormatError, "model.vocab is not a list");
    for (const JsonElement element : array)
    {
        simdjson::dom::array pair;
        std::string_view piece;
        double score = 0.0;
        const bool is_pair = element.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                             pair.at(0).get(piece) == simdjson::SUCCESS && pair.at(1).get(score) == simdjson::SUCCESS;
        VALIDATE(is_pair, FormatError, "model.vocab[{}] is not [piece, score]", result.pieces.size());
        result.pieces.emplace_back(std::string(piece), score);
    }
    if (model.find("unk_id")) { result.unk_id = model.get<std::int64_t>("unk_id", 0, "a number"); }
}

TokenizerModel read_model(const JsonFields& top)
{
    const std::optional<JsonElement> element = top.find("model");
    JsonObject object;
    VALIDATE(element && element->get(object) == simdjson::SUCCESS, FormatError, "there is no model");
    const JsonFields model(object, "model.");
    TokenizerModel result;
    result.type = model.text("type");
    // Files older than the key.
    if (result.type.empty() && model.find("merges")) { result.type = "BPE"; }
    result.fuse_unk = model.flag("fuse_unk", false);
    result.byte_fallback = model.flag("byte_fallback", false);
    result.ignore_merges = model.flag("ignore_merges", false);
    result.has_dropout = model.get<double>("dropout", 0.0, "a number") > 0.0;
    if (result.type == "BPE")
    {
        if (model.find("unk_token")) { result.unk_token = model.text("unk_token"); }
        result.continuing_subword_prefix = model.text("continuing_subword_prefix");
        result.end_of_word_suffix = model.text("end_of_word_suffix");
        TokenIds ids;
        read_vocab(model, result, ids);
        read_merges(model, result, ids);
    }
    else if (result.type == "Unigram") { read_pieces(model, result); }
    else { throw FormatError(fmt::format("model type '{}' is not supported. supported: BPE, Unigram", result.type)); }
    return result;
}

TokenizerJson read_top(JsonElement root)
{
    JsonObject object;
    VALIDATE(root.get(object) == simdjson::SUCCESS, FormatError, "not a tokenizer.json (no object at the top)");
    const JsonFields top(object, "");
    TokenizerJson result;
    const std::string version = top.text("version");
    VALIDATE(version == "1.0", FormatError, "version '{}' is not known (of tokenizer.json). known: 1.0", version);
    result.added_tokens = read_added_tokens(top);
    result.normalizer = top.part("normalizer");
    result.pre_tokenizer = top.part("pre_tokenizer");
    result.post_processor = top.part("post_processor");
    result.decoder = top.part("decoder");
    result.model = read_model(top);
    return result;
}

}  // namespace

TokenizerJson parse_tokenizer_json(const std::string& path, const std::string& text)
{
    return with_context(path,
                        [&]
                        {
                            simdjson::dom::parser parser;
                            JsonElement root;
                            const auto error = parser.parse(text).get(root);
                            VALIDATE(error == simdjson::SUCCESS, FormatError, "not valid json ({})",
                                     simdjson::error_message(error));
                            TokenizerJson result = read_top(root);
                            result.path = path;
                            result.sha256 = sha256_hex(text);
                            return result;
                        });
}

TokenizerJson read_tokenizer_json(const std::string& path) { return parse_tokenizer_json(path, read_text_file(path)); }

}  // namespace plimsoll
