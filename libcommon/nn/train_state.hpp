#pragma once
/// Parameters and moments to and from checkpoints, by boxes: the layout of the writer and of the reader need not agree.

#include <string>
#include <vector>

#include "io/checkpoint.hpp"
#include "nn/sharded_params.hpp"

namespace plimsoll::nn
{

/// What this rank writes: parameters and both moments of every tensor that it owns. @pre one rank holds everything (dp = tp =
/// pp = 1); replicas are not de-duplicated yet.
std::vector<CheckpointBox> owned_boxes(const ShardedParams& params);

/// Bytes of owned_boxes().
std::int64_t checkpoint_bytes(const ShardedParams& params);

/// Writes and commits step `meta.trainer.step` under `root`. Streams: no second copy of any tensor is held.
SavedStep save_train_state(const std::string& root, const CheckpointMeta& meta, const ShardedParams& params);

/// Fills parameters and moments. @throws FormatError when a tensor is missing, has another shape or dtype, or when the
/// checkpoint holds one that the model does not know ("tensor 'x' is missing", "has shape [..], the model needs [..]").
void load_train_state(const CheckpointReader& reader, ShardedParams& params);

}  // namespace plimsoll::nn
