#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/exit_as.hpp"
#include "base/units.hpp"
#include "documents.hpp"
#include "io/json_text.hpp"
#include "io/shard_split.hpp"
#include "stoppable_progress.hpp"

namespace plimsoll
{

namespace
{

struct SplitState
{
    SplitOptions split;
    std::vector<std::string> outs;
    bool force = false;
    bool json = false;
};

SplitPart parse_split_part(const std::string& word)
{
    const std::size_t equals = word.rfind('=');
    const bool percent = equals != std::string::npos && equals > 0 && word.back() == '%';
    VALIDATE(percent, UsageError, "--out '{}' is not a directory with its share. write it like train=90%", word);
    SplitPart part;
    part.out = word.substr(0, equals);
    part.share =
        with_context("--out", [&] { return parse_number(word.substr(equals + 1, word.size() - equals - 2)) / 100; });
    VALIDATE(part.share > 0, UsageError, "--out '{}' is not a share above 0%", word);
    return part;
}

bool is_inside(const std::string& path, const std::string& directory)
{
    return (resolve_path(path, ".") + "/").rfind(resolve_path(directory, ".") + "/", 0) == 0;
}

void set_split_parts(SplitState& o)
{
    double sum = 0;
    for (const std::string& word : o.outs)
    {
        o.split.parts.push_back(parse_split_part(word));
        sum += o.split.parts.back().share;
        for (std::size_t i = 0; i + 1 < o.split.parts.size(); ++i)
        {
            const std::string& one = o.split.parts[i].out;
            const std::string& other = o.split.parts.back().out;
            VALIDATE(resolve_path(one, ".") != resolve_path(other, "."), UsageError, "--out names '{}' twice", other);
            VALIDATE(!is_inside(one, other) && !is_inside(other, one), UsageError,
                     "--out '{}' and '{}' lie one in the other (each is made and replaced whole). choose directories "
                     "side by side",
                     one, other);
        }
    }
    VALIDATE(std::abs(sum - 1) < 1e-9, UsageError, "the shares of --out add up to {}%, not 100%",
             number_text(std::round(sum * 1e11) / 1e9));
}

std::string split_text(const std::vector<SplitReport>& reports, bool as_json)
{
    if (as_json)
    {
        nlohmann::ordered_json json;
        json["schema_version"] = 1;
        for (const SplitReport& report : reports)
        {
            json["parts"].push_back({{"out", report.out}, {"documents", report.documents}, {"tokens", report.tokens}});
        }
        return json_text(json, 2) + "\n";
    }
    std::string text;
    for (const SplitReport& report : reports)
    {
        text += fmt::format("written    {}   {} documents, {} tokens\n", report.out, format_grouped(report.documents),
                            format_grouped(report.tokens));
    }
    return text;
}

}  // namespace

Command split_command()
{
    const auto state = std::make_shared<SplitState>();
    Command command;
    command.name = "split";
    command.summary = "copies token shards into several directories, chosen by the content of each document";
    command.run_files = RunFiles::refused;
    command.positionals = {{"DIR", "directory of shards", 1, 1}};
    command.examples = {"plimsoll-shard split web --out web_train=98% web_valid=1% web_test=1% --seed 7"};
    command.declare = [state](OptionSet& options)
    {
        options.add_texts("", "out", state->outs, "directories with their shares of the documents: A=90% B=10%")
            .value_name("DIR=SHARE ...")
            .required();
        options.add_count("", "seed", state->split.seed, "of the choice");
        options
            .add_count("", "shard-tokens", state->split.shard_tokens,
                       "a shard ends before the document that would exceed it")
            .unit("tokens")
            .range(1);
        options.add_flag("", "force", state->force, "replace the token shards in the directories");
        options.add_flag("", "json", state->json, "report as JSON on stdout");
    };
    command.validate = [state] { set_split_parts(*state); };
    command.run = [state](const Invocation& invocation)
    {
        state->split.directory = invocation.positionals[0];
        if (state->force) { state->split.existing = CorpusOutput::Existing::replace; }
        StoppableProgress progress("split");
        const auto observer = [&](std::int64_t total, std::int64_t done) { progress.update(total, done); };
        const auto reports =
            exit_as<FormatError>(ExitCode::fatal, [&] { return split_shards(state->split, observer); });
        progress.finish();
        const std::string text = split_text(reports, state->json);
        std::fwrite(text.data(), 1, text.size(), stdout);
        return ExitCode::done;
    };
    return command;
}

}  // namespace plimsoll
