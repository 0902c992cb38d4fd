#pragma once
/// Parameters and moments to and from checkpoints, by boxes: the layout of the writer and of the reader need not agree.

#include <string>
#include <vector>

#include "comm/rank_groups.hpp"
#include "io/checkpoint.hpp"
#include "nn/sharded_params.hpp"

namespace plimsoll::nn
{

/// What this rank holds: parameters (in bf16 runs their master) and both moments; other ranks may hold copies.
std::vector<CheckpointBox> held_boxes(const ShardedParams& params);

/// Writes and commits step `meta.trainer.step` under `root`; every rank of `world` calls it and writes its part. Streams: no
/// second copy of any tensor is held. @throws NumericError as ShardedParams::check_master()
SavedStep save_train_state(const std::string& root, const CheckpointMeta& meta, const ShardedParams& params,
                           Communicator& world);

/// Fills this rank's parameters and moments from a checkpoint of any layout, and of fp32 or bf16 runs alike; every rank calls it.
/// @throws FormatError when a tensor is missing, has another shape or dtype, or when the
/// checkpoint holds one that the model does not know ("tensor 'x' is missing", "has shape [..], the model needs [..]").
void load_train_state(const CheckpointReader& reader, const ModelSpec& model, ShardedParams& params, RankGroups& groups);

/// Sets bf16 parameters from their master, on all ranks of a dp group together: what each rounds is sent to the others, as
/// after an update.
void share_master(ShardedParams& params, RankGroups& groups);

}  // namespace plimsoll::nn
