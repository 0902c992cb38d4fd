#include "io/corpus_journal.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/json_text.hpp"
#include "io/utf8.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

Json json_of(const CorpusSetWriter::State& state)
{
    const CorpusSet& counts = state.counts;
    const TokenShardProgress& open = state.open;
    return {counts.shards,  counts.documents,    counts.tokens,      counts.text_bytes, counts.file_bytes,
            state.finished, open.num_tokens,     open.num_documents, open.text_bytes,   open.tokens_crc,
            open.ends_crc,  open.text_bytes_crc, open.loss_mask_crc};
}

CorpusSetWriter::State set_state_of(const Json& json)
{
    CorpusSetWriter::State state;
    std::size_t at = 0;
    for (std::int64_t* value : {&state.counts.shards, &state.counts.documents, &state.counts.tokens,
                                &state.counts.text_bytes, &state.counts.file_bytes, &state.finished,
                                &state.open.num_tokens, &state.open.num_documents, &state.open.text_bytes})
    {
        *value = json.at(at++).get<std::int64_t>();
    }
    for (std::uint32_t* value :
         {&state.open.tokens_crc, &state.open.ends_crc, &state.open.text_bytes_crc, &state.open.loss_mask_crc})
    {
        *value = json.at(at++).get<std::uint32_t>();
    }
    return state;
}

Json json_of(const CorpusRunState& state)
{
    Json json;
    json["position"] = {state.position.file, state.position.offset, state.position.line};
    json["counts"] = Json::object();
    for_each_count(state.counts, [&](const char* name, std::int64_t count) { json["counts"][name] = count; });
    json["lengths"] = Json::array();
    for (const auto& entry : state.lengths.counts())
    {
        json["lengths"].push_back(entry.first);
        json["lengths"].push_back(entry.second);
    }
    json["train"] = json_of(state.train);
    json["validation"] = json_of(state.validation);
    json["bad_records"] = {state.bad_records_bytes, state.bad_records_crc};
    return json;
}

CorpusRunState run_state_of(const Json& json)
{
    CorpusRunState state;
    const Json& position = json.at("position");
    state.position = {position.at(0).get<std::int64_t>(), position.at(1).get<std::int64_t>(),
                      position.at(2).get<std::int64_t>()};
    for_each_count(state.counts, [&](const char* name, std::int64_t& count)
                   { count = json.at("counts").at(name).get<std::int64_t>(); });
    const Json& lengths = json.at("lengths");
    for (std::size_t i = 0; i + 1 < lengths.size(); i += 2)
    {
        state.lengths.set(lengths[i].get<std::int64_t>(), lengths[i + 1].get<std::int64_t>());
    }
    state.train = set_state_of(json.at("train"));
    state.validation = set_state_of(json.at("validation"));
    state.bad_records_bytes = json.at("bad_records").at(0).get<std::int64_t>();
    state.bad_records_crc = json.at("bad_records").at(1).get<std::uint32_t>();
    return state;
}

/// A path as the journal can hold it.
std::string journal_path(const std::string& path)
{
    std::string text;
    replace_invalid_utf8(path, text);
    return text;
}

Json json_of(const CorpusRunIdentity& identity)
{
    Json json;
    json["options"] = Json::object();
    for (const auto& option : identity.options) { json["options"][option.first] = option.second; }
    json["inputs"] = Json::array();
    for (const InputFile& file : identity.inputs)
    {
        json["inputs"].push_back({journal_path(file.path), file.bytes, file.modified_ns});
    }
    return json;
}

CorpusRunIdentity identity_of(const Json& json)
{
    CorpusRunIdentity identity;
    for (const auto& entry : json.at("options").items())
    {
        identity.options.emplace_back(entry.key(), entry.value().get<std::string>());
    }
    for (const Json& row : json.at("inputs"))
    {
        InputFile file;
        file.path = row.at(0).get<std::string>();
        file.bytes = row.at(1).get<std::int64_t>();
        file.modified_ns = row.at(2).get<std::int64_t>();
        identity.inputs.push_back(std::move(file));
    }
    return identity;
}

/// The rows of the journal that are whole, one after the other.
class JournalRows
{
  public:
    explicit JournalRows(const std::string& path) : text_(read_text_file(path)) {}

    /// False at the end or at the first row that a crash tore.
    bool next(Json& row)
    {
        const std::size_t end = text_.find('\n', at_);
        if (end == std::string::npos || end - at_ < 9) { return false; }
        const std::string json = text_.substr(at_ + 9, end - at_ - 9);
        const std::string crc = fmt::format("{:08x} ", crc32c(json.data(), static_cast<std::int64_t>(json.size())));
        if (text_.compare(at_, 9, crc) != 0) { return false; }
        row = Json::parse(json);
        at_ = end + 1;
        return true;
    }
    std::int64_t bytes() const { return static_cast<std::int64_t>(at_); }

  private:
    std::string text_;
    std::size_t at_ = 0;
};

void add_candidate(CorpusJournalContent& content, const Json& row, const std::vector<CorpusShard>& shards,
                   std::int64_t journal_bytes)
{
    // What lies before a durable state is never needed again.
    if (row.at("durable").get<bool>()) { content.candidates.clear(); }
    CorpusJournalContent::Candidate candidate;
    candidate.state = run_state_of(row.at("state"));
    candidate.shards = shards;
    candidate.journal_bytes = journal_bytes;
    content.candidates.insert(content.candidates.begin(), std::move(candidate));
}

}  // namespace

std::optional<CorpusJournalContent> read_corpus_journal(const std::string& path, const CorpusManifest& manifest)
{
    if (!path_exists(path)) { return std::nullopt; }
    try
    {
        CorpusJournalContent content;
        JournalRows rows(path);
        std::vector<CorpusShard> shards;
        for (Json row; rows.next(row);)
        {
            if (row.contains("run")) { content.identity = identity_of(row.at("run")); }
            if (row.contains("shard")) { shards.push_back(parse_corpus_shard(row.at("shard").dump(), manifest)); }
            if (row.contains("state")) { add_candidate(content, row, shards, rows.bytes()); }
        }
        if (content.candidates.empty()) { return std::nullopt; }
        return content;
    }
    catch (const Json::exception&)
    {
        return std::nullopt;  // of another version
    }
}

void check_same_run(const CorpusRunIdentity& then, const CorpusRunIdentity& now, const std::string& partial)
{
    const auto refuse = [&](const std::string& difference)
    {
        throw UsageError(
            fmt::format("'{}' holds an unfinished run that is not this one ({}). repeat its command to go on, or "
                        "--restart to begin anew",
                        partial, difference));
    };
    for (std::size_t i = 0; i < std::max(then.options.size(), now.options.size()); ++i)
    {
        if (i >= then.options.size() || i >= now.options.size() || then.options[i].first != now.options[i].first)
        {
            refuse("it is of another version");
        }
        const auto& before = then.options[i];
        const auto& after = now.options[i];
        // No bad record was met so far, or the run would have ended: the answer to one may still be chosen.
        if (before.first == "on-bad-record" && before.second == "error") { continue; }
        if (before.second != after.second)
        {
            refuse(fmt::format("{} was {}, is {}", before.first, before.second, after.second));
        }
    }
    if (then.inputs.size() != now.inputs.size())
    {
        refuse(fmt::format("it had {} input files, not {}", then.inputs.size(), now.inputs.size()));
    }
    for (std::size_t i = 0; i < now.inputs.size(); ++i)
    {
        const InputFile& before = then.inputs[i];
        const InputFile& after = now.inputs[i];
        if (before.path != journal_path(after.path))
        {
            refuse(fmt::format("input {} was '{}', is '{}'", i + 1, before.path, after.path));
        }
        if (before.bytes != after.bytes)
        {
            refuse(fmt::format("'{}' had {} bytes, has {}", after.path, before.bytes, after.bytes));
        }
        if (before.modified_ns != after.modified_ns) { refuse(fmt::format("'{}' was changed since", after.path)); }
    }
}

CorpusJournal::CorpusJournal(const std::string& path, std::int64_t bytes, const CorpusRunIdentity& identity)
    : file_(path, bytes == 0 ? File::Mode::create : File::Mode::read_write),
      bytes_(bytes)
{
    if (::ftruncate(file_.descriptor(), bytes) != 0) { throw_io_error("shorten", path, errno); }
    Json row;
    row["run"] = json_of(identity);
    append(json_text(row, -1));
}

void CorpusJournal::add_shard(const CorpusShard& shard) { append("{\"shard\":" + corpus_shard_json(shard) + "}"); }

void CorpusJournal::add_state(const CorpusRunState& state, TokenShardWriter::Durable durable)
{
    Json row;
    row["durable"] = durable == TokenShardWriter::Durable::yes;
    row["state"] = json_of(state);
    crash_point("corpus_journal");
    append(json_text(row, -1));
    if (durable == TokenShardWriter::Durable::yes) { file_.sync(); }
    crash_point("corpus_journaled");
}

void CorpusJournal::append(const std::string& json)
{
    const std::string row =
        fmt::format("{:08x} {}\n", crc32c(json.data(), static_cast<std::int64_t>(json.size())), json);
    file_.write_at(row.data(), static_cast<std::int64_t>(row.size()), bytes_);
    bytes_ += static_cast<std::int64_t>(row.size());
}

}  // namespace plimsoll
