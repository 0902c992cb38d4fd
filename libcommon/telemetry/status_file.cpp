#include "telemetry/status_file.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <fstream>
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

std::string status_text(const RunStatus& status)
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
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_status(const std::string& path, const RunStatus& status) { replace_text(path, status_text(status)); }

void write_progress(const std::string& path, const RunStatus& status)
{
    const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
    const bool is_written = [&]
    {
        std::ofstream file(temporary, std::ios::binary);
        file << status_text(status);
        file.close();
        return file.good();
    }();
    if (!is_written || std::rename(temporary.c_str(), path.c_str()) != 0) { std::remove(temporary.c_str()); }
}

std::pair<std::string, std::string> split_hint(const std::string& message)
{
    // A path in quotes or a reason in parentheses may hold a full stop and a space. An apostrophe inside a word opens no quote.
    int depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at + 1 < message.size(); ++at)
    {
        const char c = message[at];
        const bool starts_word = at == 0 || message[at - 1] == ' ' || message[at - 1] == '(';
        if (c == '\'' && quoted) { quoted = false; }
        else if (c == '\'' && starts_word && message.find('\'', at + 1) != std::string::npos) { quoted = true; }
        if (quoted) { continue; }
        if (c == '(') { ++depth; }
        if (c == ')' && depth > 0) { --depth; }
        if (c == '.' && message[at + 1] == ' ' && depth == 0) { return {message.substr(0, at), message.substr(at + 2)}; }
    }
    return {message, ""};
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
