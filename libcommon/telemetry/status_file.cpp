#include "telemetry/status_file.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <unistd.h>
#include <utility>

#include "base/text_file.hpp"
#include "telemetry/host.hpp"

namespace plimsoll
{

namespace
{

constexpr std::array<std::pair<RunState, const char*>, 4> state_names = {{{RunState::running, "running"},
                                                                          {RunState::done, "done"},
                                                                          {RunState::stopped, "stopped"},
                                                                          {RunState::failed, "failed"}}};

}  // namespace

void write_status(const std::string& path, const RunStatus& status)
{
    nlohmann::ordered_json json;
    json["schema"] = 1;
    for (const auto& name : state_names)
    {
        if (name.first == status.state) { json["state"] = name.second; }
    }
    if (status.exit < 0) { json["exit"] = nullptr; }
    else { json["exit"] = status.exit; }
    json["reason"] = status.reason;
    json["step"] = status.step;
    json["hint"] = status.hint;
    json["attempt"] = status.attempt;
    json["host"] = host_name();
    json["process"] = static_cast<int>(::getpid());
    json["time"] = utc_now();
    // A path in a reason may hold any bytes: they must not make the status unwritable.
    replace_text(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

RunStatus read_status(const std::string& path)
{
    const std::string text = load_text(path, "status file");
    try
    {
        const nlohmann::json json = nlohmann::json::parse(text);
        RunStatus status;
        const auto state = json.at("state").get<std::string>();
        bool known = false;
        for (const auto& name : state_names)
        {
            if (state != name.second) { continue; }
            status.state = name.first;
            known = true;
        }
        VALIDATE(known, FormatError, "'{}' has the unknown state '{}'", path, state);
        status.exit = json.at("exit").is_null() ? -1 : json.at("exit").get<int>();
        status.reason = json.at("reason").get<std::string>();
        status.step = json.at("step").get<std::int64_t>();
        status.hint = json.at("hint").get<std::string>();
        status.attempt = json.at("attempt").get<int>();
        status.host = json.value("host", "");
        status.process = json.value("process", 0);
        status.time = json.value("time", "");
        return status;
    }
    catch (const nlohmann::json::exception& error)
    {
        throw FormatError(fmt::format("'{}' is not a status file ({})", path, error.what()));
    }
}

RunState state_of(ExitCode code)
{
    switch (code)
    {
        case ExitCode::done: return RunState::done;
        case ExitCode::interrupted: return RunState::stopped;
        default: return RunState::failed;
    }
}

}  // namespace plimsoll
