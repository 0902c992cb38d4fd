#pragma once
/// Cores that this process may use: its affinity mask, which a launcher or batch system narrows.

namespace plimsoll
{

/// At least 1.
int allowed_cores();

}  // namespace plimsoll
