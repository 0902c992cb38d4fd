#include "layout/run_config_data.hpp"

#include <algorithm>

#include "base/run_file.hpp"

namespace plimsoll
{

namespace
{

using Names = std::vector<std::string>;
constexpr auto one_word = OptionSet::Arity::one;
constexpr auto word_list = OptionSet::Arity::list;

DataSource& source_of(RunConfig::Data& data, const std::string& name)
{
    for (DataSource& source : data.sources)
    {
        if (source.name == name) { return source; }
    }
    data.sources.emplace_back();
    data.sources.back().name = name;
    return data.sources.back();
}

constexpr const char* megatron_scheme = "megatron:";

bool has_scheme(const std::string& word) { return word.rfind(megatron_scheme, 0) == 0; }

/// As expand_paths(); behind a scheme stands a prefix of file names, not a pattern.
Names expand_shards(const OptionValue& value)
{
    Names shards;
    for (const std::string& word : value.words)
    {
        if (has_scheme(word))
        {
            const std::string prefix = word.substr(std::string(megatron_scheme).size());
            VALIDATE(!prefix.empty(), ConfigError,
                     "'{}' names no files (megatron:PREFIX reads PREFIX.bin and PREFIX.idx)", word);
            shards.push_back(megatron_scheme + resolve_path(prefix, value.directory));
            continue;
        }
        OptionValue paths = value;
        paths.text = word;
        paths.words = {word};
        for (std::string& path : expand_paths(paths))
        {
            if (std::find(shards.begin(), shards.end(), path) == shards.end()) { shards.push_back(std::move(path)); }
        }
    }
    return shards;
}

std::string quoted(const Names& names)
{
    Names words;
    for (const std::string& name : names) { words.push_back(quote_word(name)); }
    return fmt::format("{}", fmt::join(words, " "));
}

double positive_number(const OptionValue& value)
{
    const double number = parse_number(value.text);
    VALIDATE(number > 0, ConfigError, "{} is too small (more than 0)", value.text);
    return number;
}

/// Keys of one source; it exists from the first key that is set.
void declare_source(OptionSet& options, RunConfig::Data& data, const std::string& section, const std::string& name)
{
    options
        .add_custom(
            section, "shards", word_list, "",
            [&data, name](const OptionValue& value)
            {
                std::vector<std::string>& shards = source_of(data, name).shards;
                shards = expand_shards(value);
                return quoted(shards);
            },
            "token shards to learn from; globs expand; megatron:PREFIX reads PREFIX.bin and PREFIX.idx")
        .value_name("FILE ...")
        .peers({"data-path", "train-data-path", "dataset-path", "training.dataset-path"});
    options
        .add_custom(
            section, "weight", one_word, "",
            [&data, name](const OptionValue& value)
            { return number_text(source_of(data, name).weight = positive_number(value)); },
            "share of the training tokens")
        .value_name("X")
        .shown_default("1");
    options
        .add_custom(
            section, "max-epochs", one_word, "",
            [&data, name](const OptionValue& value)
            {
                const double epochs = positive_number(value);
                source_of(data, name).max_epochs = epochs;
                return number_text(epochs);
            },
            "a run that would read the source more often is refused")
        .value_name("X")
        .shown_default("no limit");
    options
        .add_custom(
            section, "vocab", one_word, "",
            [&data, name](const OptionValue& value)
            {
                const std::int64_t vocab = parse_count(value.text);
                VALIDATE(vocab > 0, ConfigError, "{} is too small (at least 1)", value.text);
                source_of(data, name).vocab = vocab;
                return std::to_string(vocab);
            },
            "token ids are below this, of files that do not say (megatron:)")
        .value_name("N")
        .shown_default("the model's");
}

void declare_fim(OptionSet& options, Fim& fim)
{
    options.add_number("data", "fim-rate", fim.rate, "share of the documents that are rearranged to fill in the middle")
        .range(0, 1)
        .peers({"fim-rate"});
    options
        .add_number("data", "fim-spm-rate", fim.spm_rate,
                    "share of those whose suffix comes first (SPM), the others are PSM")
        .range(0, 1)
        .peers({"fim-spm-rate"});
    options
        .add_custom(
            "data", "fim-tokens", word_list, "",
            [&fim](const OptionValue& value)
            {
                VALIDATE(value.words.size() == 3, ConfigError,
                         "'{}' is not three ids (of the prefix, suffix and middle mark)", value.text);
                fim.prefix = parse_count(value.words[0]);
                fim.suffix = parse_count(value.words[1]);
                fim.middle = parse_count(value.words[2]);
                VALIDATE(fim.prefix != fim.suffix && fim.suffix != fim.middle && fim.middle != fim.prefix, ConfigError,
                         "'{}' names an id twice", value.text);
                return fmt::format("{} {} {}", fim.prefix, fim.suffix, fim.middle);
            },
            "ids of the prefix, suffix and middle mark")
        .value_name("N N N");
}

std::int64_t parse_eval_tokens(const std::string& text)
{
    if (text == "all") { return -1; }
    const std::int64_t tokens = parse_count(text);
    VALIDATE(tokens > 0, ConfigError, "{} is too small (at least 1)", text);
    return tokens;
}

std::string eval_tokens_text(std::int64_t tokens) { return tokens < 0 ? "all" : std::to_string(tokens); }

EvalSet& eval_set_of(RunConfig::Eval& eval, const std::string& name)
{
    for (EvalSet& set : eval.sets)
    {
        if (set.name == name) { return set; }
    }
    eval.sets.emplace_back();
    eval.sets.back().name = name;
    return eval.sets.back();
}

/// Keys of one [eval.NAME]; what it does not say is as in [eval].
void declare_eval_set(OptionSet& options, RunConfig::Eval& eval, const std::string& name)
{
    const std::string section = "eval." + name;
    options
        .add_custom(
            section, "shards", word_list, "",
            [&eval, name](const OptionValue& value)
            {
                EvalSet& set = eval_set_of(eval, name);
                set.shards = expand_shards(value);
                return quoted(set.shards);
            },
            "token shards of a further validation set")
        .value_name("FILE ...");
    options
        .add_custom(
            section, "every", one_word, "",
            [&eval, name](const OptionValue& value)
            {
                eval_set_of(eval, name).every = parse_span(value.text);
                return value.text;
            },
            "distance of its validations")
        .value_name("SPAN")
        .shown_default("as in [eval]");
    options
        .add_custom(
            section, "tokens", one_word, "",
            [&eval, name](const OptionValue& value)
            {
                const std::int64_t tokens = parse_eval_tokens(value.text);
                eval_set_of(eval, name).tokens = tokens;
                return eval_tokens_text(tokens);
            },
            "tokens of one validation, the same each time")
        .value_name("N|all")
        .shown_default("as in [eval]");
    options.on_parsed(
        [&options, &eval, name, section]
        {
            EvalSet& set = eval_set_of(eval, name);
            VALIDATE(!set.shards.empty(), ConfigError, "[{}] has no shards. set shards in [{}]", section, section);
            if (!options.is_set(section + ".every")) { set.every = eval.every; }
            if (!options.is_set(section + ".tokens")) { set.tokens = eval.tokens; }
        });
}

}  // namespace

void declare_data(OptionSet& options, RunConfig::Data& data)
{
    options.add_count("data", "seq-len", data.seq_len, "length of a training sequence")
        .unit("tokens")
        .flag("seq-len")
        .range(1)
        .no_default()
        .peers({"seq-length", "sequence-length", "max-seq-len", "training.seq-len", "max-position-embeddings",
                "max-seq-length"});
    options
        .add_custom(
            "data", "shuffle", one_word, "global",
            [&data](const OptionValue& value)
            {
                data.shuffle = parse_shuffle(value.text);
                return shuffle_text(data.shuffle);
            },
            "order of samples: all mixed; mixed within windows of N tokens, for storage with slow random access; as "
            "stored")
        .value_name("global|window:N|none")
        .peers({"dataloader-type", "shuffle-algo", "shuffle-block-size"});
    options
        .add_choice("data", "packing", data.packing, {"concat", "best-fit"},
                    "how documents fill samples: one behind the other, cut where a sample ends; or so that few are cut")
        .peers({"packing-strategy"});
    options
        .add_flag("data", "document-masks", data.document_masks,
                  "a token attends to its own document only, and positions begin at 0 with each")
        .peers({"reset-attention-mask", "reset-position-ids"});
    declare_fim(options, data.fim);
    declare_source(options, data, "data", "");
    options.add_named_sections("data", [&data](OptionSet& set, const std::string& name)
                               { declare_source(set, data, "data." + name, name); });
    options.on_parsed(
        [&data]
        {
            for (const DataSource& source : data.sources)
            {
                const std::string section = source.name.empty() ? "data" : "data." + source.name;
                VALIDATE(!source.shards.empty(), ConfigError, "[{}] has no shards. set shards in [{}]", section,
                         section);
            }
        });
}

void declare_eval(OptionSet& options, RunConfig::Eval& eval)
{
    options
        .add_custom(
            "eval", "shards", word_list, "",
            [&eval](const OptionValue& value)
            {
                eval.shards = expand_shards(value);
                return quoted(eval.shards);
            },
            "token shards to validate on; globs expand")
        .value_name("FILE ...")
        .peers({"valid-data-path", "validation-data-path", "validation.dataset-path"});
    options.add_span("eval", "every", eval.every, "distance of validations")
        .peers({"eval-interval", "validation.freq", "val-check-interval", "eval-steps"});
    options
        .add_custom(
            "eval", "tokens", one_word, "all",
            [&eval](const OptionValue& value)
            {
                eval.tokens = parse_eval_tokens(value.text);
                return eval_tokens_text(eval.tokens);
            },
            "tokens of one validation, the same each time")
        .value_name("N|all")
        .peers({"eval-iters", "validation.steps"});
    options.add_count("eval", "micro-batch", eval.micro_batch, "batch of one forward pass")
        .unit("sequences")
        .shown_default("as in [layout]")
        .peers({"eval-micro-batch-size", "eval-batch-size"});
    options.add_named_sections("eval",
                               [&eval](OptionSet& set, const std::string& name) { declare_eval_set(set, eval, name); });
}

}  // namespace plimsoll
