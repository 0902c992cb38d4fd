#pragma once
/// Which rank writes which box into which shard file, from what each rank holds. Pure and the same on every rank. For io's
/// own files.

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"

namespace plimsoll::checkpoint
{

/// One shard file to be written.
struct FilePlan
{
    std::int64_t creator = 0;          ///< rank that creates and finishes it
    std::vector<CheckpointBox> boxes;  ///< state by state, tensors in the order of StepPlan::names
    std::vector<std::int64_t> owners;  ///< rank that writes each box
};

struct StepPlan
{
    std::vector<std::string> names;         ///< of all tensors, as the ranks list them
    std::vector<CheckpointTensor> tensors;  ///< state by state, in the order of names
    std::vector<FilePlan> files;            ///< without those that would hold no box, but for a first one
};

/// Files are one per rank up to this many ranks, then groups of as many ranks as keep it.
constexpr std::int64_t max_default_files = 64;

/// `held`: the boxes of each rank. Equal boxes on several ranks are replicas: one of them writes, the one with the least to
/// write so far (the largest boxes choose first; on a tie the rank whose file holds least, then the lowest). `ranks_per_file` 0: chosen (max_default_files).
/// @throws InternalError when boxes overlap, leave elements out, or differ in a tensor's type or shape
StepPlan plan_step(const std::vector<std::vector<CheckpointBox>>& held, std::int64_t ranks_per_file);

/// A list of boxes as bytes and back, for the exchange between ranks.
std::string pack_boxes(const std::vector<CheckpointBox>& boxes);
std::vector<CheckpointBox> unpack_boxes(const std::string& bytes);

}  // namespace plimsoll::checkpoint
