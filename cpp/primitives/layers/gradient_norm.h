// The norm of all gradients together, which limits how far a step goes. Squares are summed in
// float32, parts of 4096 in float64 in a fixed order: the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rows/row_kernel.h"

namespace dlprim {

// Of arrays of known sizes. Several threads may call one at once; a call allocates nothing.
class GradientNorm {
public:
    explicit GradientNorm(std::span<const std::int64_t> counts);

    // Of elements that lie one after the other, in arrays in the order of the counts.
    double run(const float* const* gradients) const;

private:
    std::vector<std::int64_t> counts_;
    std::vector<std::int64_t> first_part_{0};  // of each array, and behind them of all
    std::shared_ptr<const RowKernel> kernel_;
};

// What gradients of such a norm are multiplied by so that it is at most the limit: 1 where it is.
// No number where one of the two is none, or both are infinite.
float clipping_factor(double norm, double limit);

}  // namespace dlprim
