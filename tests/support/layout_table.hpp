#pragma once
// The parity matrix (tests/torch/parity/layouts.txt) and the models that its rows name.

#include <iosfwd>
#include <string>
#include <vector>

#include "layout/parallel_layout.hpp"

namespace plimsoll::test
{

constexpr std::int64_t table_batch = 24;  // sequences per step: 8 dp ranks x 3 accumulated

/// What a row claims of its run in bf16, beside one rank's in bf16.
enum class Bf16Claim
{
    none,   ///< it has none
    close,
    bits,   ///< the same sums in the same order
};

struct LayoutRow
{
    std::string text;             ///< as it stands in the file, one blank between words
    std::string test_name;        ///< the layout alone, of letters, digits and underscores
    std::string model;
    ParallelLayout layout;        ///< with one micro-batch per step; every unit a bucket of its own, none resident
    std::int64_t micro_batches = 3;
    bool mpi = false;
    Bf16Claim bf16 = Bf16Claim::none;

    /// The fewest micro-batches per step that the schedule takes.
    std::int64_t least_micro_batches() const;
    ParallelLayout with_micro_batches(std::int64_t number) const;
};

/// For GoogleTest.
void PrintTo(const LayoutRow& row, std::ostream* out);

/// @throws std::runtime_error naming file and line
std::vector<LayoutRow> read_layout_table();

/// @throws std::runtime_error for a name that is none
ModelSpec table_model(const std::string& name);
/// Its config.json.
std::string table_config(const std::string& name);

}  // namespace plimsoll::test
