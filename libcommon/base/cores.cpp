#include "base/cores.hpp"

#include <sched.h>

namespace plimsoll
{

int allowed_cores()
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace plimsoll
