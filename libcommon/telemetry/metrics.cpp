#include "telemetry/metrics.hpp"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text_file.hpp"
#include "telemetry/host.hpp"

namespace plimsoll
{

namespace
{

void name_non_finite(nlohmann::ordered_json& value)
{
    if (value.is_structured())
    {
        for (auto& item : value) { name_non_finite(item); }
        return;
    }
    if (!value.is_number_float()) { return; }
    const double number = value.get<double>();
    if (std::isnan(number)) { value = "nan"; }
    else if (std::isinf(number)) { value = number > 0 ? "inf" : "-inf"; }
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path, int attempt) : path_(path), attempt_(attempt)
{
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    VALIDATE(fd_ >= 0, IoError, "cannot open '{}' ({})", path, system_reason(errno));
    const off_t end = ::lseek(fd_, 0, SEEK_END);
    char last = '\n';
    if (end > 0 && ::pread(fd_, &last, 1, end - 1) == 1) { is_torn_ = last != '\n'; }
}

MetricsWriter::~MetricsWriter() { ::close(fd_); }

void MetricsWriter::write(nlohmann::ordered_json row)
{
    EXPECT(row.is_object());
    row["attempt"] = attempt_;
    row["time"] = utc_now();
    name_non_finite(row);
    const std::string line =
        (is_torn_ ? "\n" : "") + row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    ssize_t put = -1;
    do {
        put = ::write(fd_, line.data(), line.size());
    } while (put < 0 && errno == EINTR);
    const int reason = put < 0 ? errno : ENOSPC;
    is_torn_ = put != static_cast<ssize_t>(line.size()) && (put > 0 || is_torn_);
    VALIDATE(put == static_cast<ssize_t>(line.size()), IoError, "cannot write '{}' ({})", path_, system_reason(reason));
}

std::vector<nlohmann::json> read_metrics(const std::string& path, int* num_skipped)
{
    const std::string text = load_text(path, "metrics file");
    std::vector<nlohmann::json> rows;
    int skipped = 0;
    for (std::size_t at = 0; at < text.size();)
    {
        std::size_t end = text.find('\n', at);
        if (end == std::string::npos) { end = text.size(); }
        nlohmann::json row = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(at),
                                                   text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
        if (row.is_object()) { rows.push_back(std::move(row)); }
        else if (end > at) { ++skipped; }
        at = end + 1;
    }
    if (num_skipped != nullptr) { *num_skipped = skipped; }
    return rows;
}

}  // namespace plimsoll
