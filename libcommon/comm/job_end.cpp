#include "comm/job_end.hpp"

#include <algorithm>
#include <new>

#include "comm/exchange.hpp"

namespace plimsoll
{

namespace
{

constexpr std::size_t most_shown = 4;

std::string message_of(const std::vector<RankEnd>& ends, EndReason reason)
{
    std::vector<std::size_t> shown;
    std::size_t num_speakers = 0;
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
    {
        const RankEnd& end = ends[rank];
        if (!end.has_failed || end.reason != reason) { continue; }
        ++num_speakers;
        const bool is_known =
            std::any_of(shown.begin(), shown.end(), [&](std::size_t other) { return ends[other].text == end.text; });
        if (!is_known) { shown.push_back(rank); }
    }
    if (shown.size() == 1 && num_speakers == ends.size()) { return ends[shown.front()].text; }
    std::string all;
    for (std::size_t i = 0; i < std::min(shown.size(), most_shown); ++i)
    {
        const RankEnd& end = ends[shown[i]];
        const std::string place = end.place.empty() ? "" : fmt::format(" ({})", end.place);
        all += fmt::format("{}rank {}{}: {}", i == 0 ? "" : "; ", shown[i], place, end.text);
    }
    if (shown.size() > most_shown) { all += fmt::format("; and {} other messages", shown.size() - most_shown); }
    return all;
}

}  // namespace

JobEnd conclude(const std::vector<RankEnd>& ends)
{
    EXPECT(!ends.empty());
    const RankEnd* failed = nullptr;
    for (const RankEnd& end : ends)
    {
        if (end.has_failed && (failed == nullptr || end.reason < failed->reason)) { failed = &end; }
    }
    JobEnd job;
    job.code = failed == nullptr ? ends.front().code : failed->code;
    if (failed != nullptr) { job.message = message_of(ends, failed->reason); }
    return job;
}

RankEnd end_of_current_exception()
{
    RankEnd end;
    end.has_failed = true;
    end.code = ExitCode::failed;
    try
    {
        throw;
    }
    catch (const Error& error)
    {
        end.code = error.exit_code();
        if (dynamic_cast<const CutOffError*>(&error) != nullptr) { end.reason = EndReason::cut_off; }
        else if (dynamic_cast<const CommError*>(&error) != nullptr) { end.reason = EndReason::connection; }
        end.text = error.what();
    }
    catch (const std::bad_alloc&)
    {
        end.text = "out of memory (the system refused an allocation). close other programs or use a smaller batch";
    }
    catch (const std::exception& error)
    {
        end.text = fmt::format("unexpected error ({}). this is a fault of plimsoll, please report it", error.what());
    }
    catch (...)
    {
        end.text = "unexpected error of unknown type. this is a fault of plimsoll, please report it";
    }
    return end;
}

std::string to_bytes(const RankEnd& end)
{
    MessageWriter writer;
    writer.add(static_cast<std::int32_t>(end.code));
    writer.add(static_cast<std::uint8_t>(end.has_failed));
    writer.add(static_cast<std::uint8_t>(end.reason));
    writer.add_text(end.text);
    writer.add_text(end.place);
    return writer.bytes();
}

RankEnd end_from_bytes(const std::string& bytes)
{
    MessageReader reader(bytes);
    RankEnd end;
    end.code = static_cast<ExitCode>(reader.get<std::int32_t>());
    end.has_failed = reader.get<std::uint8_t>() != 0;
    end.reason = static_cast<EndReason>(reader.get<std::uint8_t>());
    end.text = reader.get_text();
    end.place = reader.get_text();
    return end;
}

}  // namespace plimsoll
