#include "mem/device.hpp"

#include <fmt/format.h>

namespace plimsoll
{

std::string to_string(const Device& device)
{
    return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace plimsoll
