// One convolution with everything around it that makes a wrong access or value show: operands and
// results between pages that fault, NaN in channels that do not exist, and plain loops in double as
// the oracle. The values are eighths, for which every float32 sum is exact, so that results are
// compared for equality; a bfloat16 result is the sum rounded once.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "primitives/conv/conv2d.h"
#include "primitives/tensor/parallel.h"
#include "typed_problem.h"

namespace dlprim::testing {

// Sets the number of threads while it lives.
class Threads {
public:
    explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    ~Threads() { set_num_threads(before_); }

private:
    int before_;
};

struct ConvOperands {
    std::vector<float> src;
    std::vector<float> weights;
    std::vector<float> bias;
    std::vector<float> residual;
    std::vector<float> diff_dst;
};

ConvOperands conv_operands(const ConvShape& shape, Values values, std::uint64_t seed);

// In plain order, and the mask with an element per element of dst.
struct ConvResults {
    std::vector<float> dst;
    std::vector<float> mask;
    std::vector<float> diff_src;
    std::vector<float> diff_weights;        // of the type of the convolution
    std::vector<float> diff_weights_float;  // the same in float32

    friend bool operator==(const ConvResults&, const ConvResults&) = default;
};

// Which of the fused operands of the forward pass there are.
struct ConvFused {
    bool residual = false;
    bool mask = false;
};

// Sums in double, before anything is rounded to `dtype`.
class ConvOracle {
public:
    ConvOracle(const ConvShape& shape, const ConvOperands& operands);

    ConvResults results(const ConvSpec& spec, const ConvFused& fused) const;

private:
    ConvShape shape_;
    const ConvOperands& operands_;
    std::vector<double> dst_;
    std::vector<double> diff_src_;
    std::vector<double> diff_weights_;
};

// What the object computes. `fault` gets a sentence when something else was written.
ConvResults computed(const Conv2d& conv, const ConvOperands& operands, const ConvFused& fused,
                     Fence fence, std::string& fault);

}  // namespace dlprim::testing
