#pragma once
/// Where memory lives and where work is queued. On the CPU work is immediate: a stream is always drained.

#include <cstdint>
#include <string>

namespace plimsoll
{

enum class DeviceKind { cpu, cuda };

struct Device
{
    DeviceKind kind = DeviceKind::cpu;
    int index = 0;
    friend bool operator==(const Device& a, const Device& b) { return a.kind == b.kind && a.index == b.index; }
};

std::string to_string(const Device& device);

class Stream;

/// A point in a stream's work. On the CPU: always complete.
class Event
{
  public:
    void record(Stream& stream);
    bool query() const { return true; }
    void synchronize() {}
};

/// A queue of work on a device, in order. Not thread-safe: one stream belongs to one control thread.
class Stream
{
  public:
    explicit Stream(Device device = Device()) : device_(device) {}
    const Device& device() const { return device_; }
    /// Later work on this stream starts after `event`.
    void wait(const Event&) {}
    void synchronize() {}

  private:
    Device device_;
};

inline void Event::record(Stream&) {}

}  // namespace plimsoll
