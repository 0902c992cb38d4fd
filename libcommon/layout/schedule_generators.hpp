#pragma once
/// The schedules by name. Each is sound (verify_schedule() finds nothing) for every shape that meets its preconditions.
///
/// S stages, m micro-batches, v chunks per stage; F, B, W are the times of forward, backward_input and backward_weight of one
/// chunk. The bubble is a step's time less the work of one stage; messages take no time.
///
///     schedule      most chunks in flight on stage s           bubble
///     gpipe         m                                          (S - 1) (F + B + W)
///     1f1b          min(m, S - s)                              (S - 1) (F + B + W)
///     interleaved   min(m v, 2 (S - s - 1) + (v - 1) S + 1)    (S - 1) (F + B + W); a chunk's times are 1/v of a stage's
///     zb-h1         min(m, S)                                  (S - 1) (F + B - W) where W <= F, W <= B and m >= S
///     zbv           min(2 m, 2 S)                              (S - 1) F where F = B = W and m >= 2 S - 1: stages start one after
///                                                              another and then never wait
///
/// Sources: gpipe Huang et al. 2019; 1f1b and interleaved Narayanan et al. 2021; zb-h1 Qi et al. 2023 (arXiv 2401.10241); zbv its
/// section on V-shaped schedules.

#include <string>
#include <vector>

#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

enum class PipelineKind : std::uint8_t
{
    one_f_one_b,
    gpipe,
    interleaved,
    zb_h1,
    zbv,
};
constexpr int num_pipeline_kinds = 5;

/// "1f1b", "gpipe", "interleaved", "zb-h1", "zbv": as run file and messages say it.
const char* pipeline_kind_name(PipelineKind kind);
/// All names, in the order of the enumeration.
std::vector<std::string> pipeline_kind_names();
/// @throws ConfigError for any other name
PipelineKind parse_pipeline_kind(const std::string& name);

/// Forward and plain backward of each micro-batch in turn: the schedule of a single stage.
PipelineSchedule make_single_stage_schedule(std::int64_t num_micro_batches);

/// All forwards, then all backwards in the same order. @pre num_stages >= 1, num_micro_batches >= 1
PipelineSchedule make_gpipe_schedule(std::int64_t num_stages, std::int64_t num_micro_batches);

/// Stage s first runs min(S - s - 1, m) forwards, then a forward and a backward in turn. One stage: make_single_stage_schedule().
/// @pre num_stages >= 1, num_micro_batches >= 1
PipelineSchedule make_1f1b_schedule(std::int64_t num_stages, std::int64_t num_micro_batches);

/// 1F1B over v S virtual stages: S micro-batches pass chunk 0, then the same S chunk 1, and so on; backward takes the chunks in
/// reverse. @pre num_stages >= 1, num_chunks >= 1, num_micro_batches a positive multiple of num_stages
PipelineSchedule make_interleaved_schedule(std::int64_t num_stages, std::int64_t num_micro_batches, std::int64_t num_chunks);

/// 1F1B whose stage s does the weight half s micro-batches later: gradients go up the pipeline earlier, and the weights' work
/// fills the end. No stage holds more than stage 0 of 1F1B. @pre num_stages >= 1, num_micro_batches >= 1
PipelineSchedule make_zb_h1_schedule(std::int64_t num_stages, std::int64_t num_micro_batches);

/// Two chunks per stage in a V: the loss stands where the tokens enter, so that its backward begins at once.
/// @pre num_stages >= 1, num_micro_batches >= 1
PipelineSchedule make_zbv_schedule(std::int64_t num_stages, std::int64_t num_micro_batches);

/// By kind; `num_chunks` counts for interleaved only. One stage that holds the whole model needs no pipeline: always
/// make_single_stage_schedule(). @pre that of the generator
PipelineSchedule make_schedule(PipelineKind kind, std::int64_t num_stages, std::int64_t num_micro_batches,
                               std::int64_t num_chunks);

/// How the kind places chunks.
ChunkPlacement placement_of(PipelineKind kind);

/// Chunks of a stage where nobody says how many: 2 with the kinds that have several, else 1.
std::int64_t default_num_chunks(PipelineKind kind);

}  // namespace plimsoll
