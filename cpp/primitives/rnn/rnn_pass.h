// The products of a recurrent layer as passes with a schedule each: what they are, which schedules
// they can follow, and which one they follow until they are given another. All that was measured
// about these orders stands here (docs/rnn.md has the figures).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "primitives/rnn/rnn_shape.h"

namespace dlprim {

class ContractionPlan;
struct ContractionRules;

// Loops: n rows, k and c channels, g gates, s slots and panels of deltas, r rows that are summed.
// Products that depend on nothing but finished tensors run over many rows; the two that make a step
// wait for the one before it leave a block at a time where the gates find it hot (rnn_steps.h).
enum class RnnPass : std::uint8_t {
    projection,       // sums(n, g, k) = src * w_ih + bias; [panel][slot][row][width]
    recurrence,       // sums += hidden * w_hh of one step; the caller keeps the parts of n apart
    diff_recurrence,  // tile(n, k) = deltas * w_hh transposed of one step
    diff_src,         // deltas * w_ih transposed
    diff_w_ih,        // deltas transposed * src, of one gate
    diff_w_hh         // and * the hidden state before every step
};
inline constexpr std::array<RnnPass, 6> kRnnPasses = {RnnPass::projection,      RnnPass::recurrence,
                                                      RnnPass::diff_recurrence, RnnPass::diff_src,
                                                      RnnPass::diff_w_ih,       RnnPass::diff_w_hh};

// Those that a layer without a backward pass has.
inline constexpr std::size_t kForwardPasses = 2;

constexpr std::string_view name_of(RnnPass pass) {
    constexpr std::array<std::string_view, kRnnPasses.size()> names = {
        "projection", "recurrence", "diff_recurrence", "diff_src", "diff_w_ih", "diff_w_hh"};
    return names.at(static_cast<std::size_t>(pass));
}

// Steps whose products with src run at once.
std::int64_t steps_together(const RnnShape& shape);
// And the rows of these, which the memory of their sums has room for.
std::int64_t sum_rows(const RnnShape& shape);

// Rows as the operands of the gradients of the weights have them: in bfloat16 whole pairs.
std::int64_t summed_rows(const RnnShape& shape);

// Loops of the recurrent products.
inline constexpr std::size_t kRowsLoop = 0;
inline constexpr std::size_t kChannelsLoop = 1;
inline constexpr std::size_t kGatesLoop = 2;  // of the recurrence

// The variant of a projection is its rows, that of a recurrence the gates that run together; the
// others have one, for which any number stands.
ContractionRules rnn_rules(const RnnShape& shape, RnnPass pass);

// Rows of a tile, which is what the innermost step of the rows leaves of a recurrent product.
std::int64_t tile_rows(const ContractionPlan& recurrent);

}  // namespace dlprim
