#pragma once
/// A test decorator that finds missing waits and buffers used too early, on a machine where everything is immediate.
///
/// An operation runs on copies: it reads its inputs when it is issued and writes its results into the caller's buffers only
/// when its Work is waited for. Until then what will be written is filled with bytes 0xFF: NaN for floating point, -1 for
/// integers. So a result that is read before its wait is NaN, on every back end and at any timing. The wait throws
/// InternalError when a result buffer was written to, or an input changed, since the call. A Work that nobody waits for is an
/// error of the inner communicator.
///
/// The inner operation is started at once and moves forward while anything is waited for: a program that does not deadlock
/// without the decorator does not with it. Costs a copy of every buffer: for tests.

#include <memory>

#include "comm/communicator.hpp"

namespace plimsoll
{

/// Its subgroups are delayed too.
std::unique_ptr<Communicator> make_delayed_communicator(std::unique_ptr<Communicator> inner);
/// `inner` outlives it.
std::unique_ptr<Communicator> make_delayed_communicator(Communicator& inner);

}  // namespace plimsoll
