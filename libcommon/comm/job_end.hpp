#pragma once
/// How the ranks of a job ended, as one exit code and one message. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace plimsoll
{

/// Why a rank failed, the one that matters most first.
enum class EndReason : std::uint8_t
{
    own,         ///< something of its own
    connection,  ///< CommError: others died, hang or disagree
    cut_off      ///< CutOffError: another rank failed
};

/// The end of one rank.
struct RankEnd
{
    ExitCode code = ExitCode::done;
    bool has_failed = false;
    EndReason reason = EndReason::own;  ///< when it has failed
    std::string text;   ///< of the error
    std::string place;  ///< what the rank did, as describe() says it; may be empty
};

struct JobEnd
{
    ExitCode code = ExitCode::done;
    std::string message;  ///< empty when no rank failed
};

/// The code is that of the first rank that failed for the reason that matters most, else of rank 0. The message has each text
/// of that reason once, with the first rank that says it ("rank 1 (step 7, after save): disk full; rank 3 (...): ...", at most four)
/// unless all ranks say the same. @pre ends is not empty
JobEnd conclude(const std::vector<RankEnd>& ends);

/// What an exception that leaves a rank's body means. Call it in a catch block.
RankEnd end_of_current_exception();

/// For sending an end to other ranks.
std::string to_bytes(const RankEnd& end);
/// @throws InternalError
RankEnd end_from_bytes(const std::string& bytes);

}  // namespace plimsoll
