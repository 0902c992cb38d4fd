#include "layout/pipeline_schedule.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

TEST(ChunkPlacement, WorkedExample)
{
    const std::int64_t round_robin[3][2] = {{0, 3}, {1, 4}, {2, 5}};
    const std::int64_t v_shape[3][2] = {{0, 5}, {1, 4}, {2, 3}};
    for (std::int64_t stage = 0; stage < 3; ++stage)
    {
        for (std::int64_t chunk = 0; chunk < 2; ++chunk)
        {
            EXPECT_EQ(virtual_stage(ChunkPlacement::round_robin, 3, stage, chunk), round_robin[stage][chunk]);
            EXPECT_EQ(virtual_stage(ChunkPlacement::v_shape, 3, stage, chunk), v_shape[stage][chunk]);
        }
    }
}

TEST(ChunkPlacement, PlaceIsTheInverse)
{
    for (const ChunkPlacement placement : {ChunkPlacement::round_robin, ChunkPlacement::v_shape})
    {
        for (std::int64_t stages = 1; stages <= 8; ++stages)
        {
            for (std::int64_t v = 0; v < 2 * stages; ++v)
            {
                const ChunkPlace place = chunk_place(placement, stages, v);
                EXPECT_GE(place.stage, 0);
                EXPECT_LT(place.stage, stages);
                EXPECT_EQ(virtual_stage(placement, stages, place.stage, place.chunk), v);
            }
        }
    }
}

TEST(PipelineMessage, BothEndsNameTheSameMessage)
{
    PipelineSchedule schedule;
    schedule.stages.resize(3);
    schedule.num_chunks = 2;
    schedule.placement = ChunkPlacement::v_shape;
    // Chunk 1 comes back up: its activation goes from stage 2 to stage 1, its gradient down.
    const PipelineMessage up = message_of(schedule, 2, {ActionKind::send_activation, 5, 1});
    EXPECT_EQ(up, message_of(schedule, 1, {ActionKind::recv_activation, 5, 1}));
    EXPECT_EQ(up.from, 2);
    EXPECT_EQ(up.to, 1);
    EXPECT_EQ(up.sender, 3);
    const PipelineMessage down = message_of(schedule, 1, {ActionKind::send_gradient, 5, 1});
    EXPECT_EQ(down, message_of(schedule, 2, {ActionKind::recv_gradient, 5, 1}));
    EXPECT_EQ(down.from, 1);
    EXPECT_EQ(down.to, 2);
    schedule.placement = ChunkPlacement::round_robin;
    EXPECT_EQ(message_of(schedule, 2, {ActionKind::send_activation, 0, 0}),
              message_of(schedule, 0, {ActionKind::recv_activation, 0, 1}));
    EXPECT_THROW(message_of(schedule, 0, {ActionKind::forward, 0, 0}), InternalError);
}

TEST(ActionText, NamesTheChunkFromTheSecondOn)
{
    EXPECT_EQ(action_text({ActionKind::backward_input, 3, 0}), "backward_input of micro-batch 3");
    EXPECT_EQ(action_text({ActionKind::recv_gradient, 0, 1}), "recv_gradient of micro-batch 0 chunk 1");
}

}  // namespace
}  // namespace plimsoll
