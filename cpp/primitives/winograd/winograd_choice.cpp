#include "primitives/winograd/winograd_choice.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <utility>

#include "primitives/conv/conv_pass.h"
#include "primitives/winograd/winograd_schedule.h"

namespace dlprim {
namespace {

// Winograd adds the errors of its transforms to those of the sum, which are small where the sum is
// short. With this many terms or more the largest error of tiles of 4 is, in the median of several
// draws of normal data, the worst, at most twice that of the direct sum; and with these of tiles of
// 2 (docs/winograd.md).
constexpr std::int64_t kTermsForFour = 512;
constexpr std::int64_t kTermsForFourOfWeights = 256;
constexpr std::int64_t kTermsForTwo = 36;

// Of the direct sum.
std::int64_t terms_of(const ConvShape& shape, PassKind pass) {
    if (pass == PassKind::backward_weights) return shape.N * shape.P() * shape.Q();
    return kWinogradTaps * kWinogradTaps *
           (pass == PassKind::forward ? shape.group_C() : shape.group_K());
}

bool tiles_of_four(const ConvSpec& spec, PassKind pass) {
    const bool weights = pass == PassKind::backward_weights;
    const std::int64_t terms = weights ? kTermsForFourOfWeights : kTermsForFour;
    return !spec.high_accuracy && terms_of(spec.shape, pass) >= terms;
}

// Of all channels, at most: programs hold distances within these.
std::int64_t bytes_of_block(const ConvShape& shape) {
    const std::int64_t tiles = std::max(kMostTiles, std::max(shape.W, shape.Q()) / 2);
    const std::int64_t channels =
        shape.groups * whole_vectors(std::max(shape.group_C(), shape.group_K())) + kWinogradLanes;
    return slots_of(4) * slots_of(4) * tiles * channels * size_of(DType::f32);
}

// Why Winograd cannot compute a convolution, empty where it can.
std::string obstacle_to(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const auto pair = [](std::int64_t h, std::int64_t w) {
        return std::to_string(h) + "x" + std::to_string(w);
    };
    if (shape.R != kWinogradTaps || shape.S != kWinogradTaps) {
        return "the filter is " + pair(shape.R, shape.S) + ", expected 3x3";
    }
    if (shape.stride_h != 1 || shape.stride_w != 1) {
        return "the stride is " + pair(shape.stride_h, shape.stride_w) + ", expected 1";
    }
    if (shape.dilation_h != 1 || shape.dilation_w != 1) {
        return "the dilation is " + pair(shape.dilation_h, shape.dilation_w) + ", expected 1";
    }
    if (is_int8(spec.dtype)) return "its operands are of 8 bits";
    if (shape.is_depthwise()) return "it is depthwise, which is no product of matrices";
    if (bytes_of_block(shape) > std::numeric_limits<std::int32_t>::max()) {
        return "a block of tiles takes more than 2 GB";
    }
    const bool fuses = spec.activation == Activation::none || spec.activation == Activation::relu;
    if (spec.dtype != DType::f32 && !fuses) {
        return "the activation of a bfloat16 result is '" + std::string(name_of(spec.activation)) +
               "', expected none or 'relu'";
    }
    return "";
}

std::string two_digits(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.2f", value);
    return text;
}

std::string name_of_tile(int tile) {
    return tile == 2 ? "winograd F(2x2,3x3)" : "winograd F(4x4,3x3)";
}

// The faster of the tiles that are accurate enough.
struct Estimate {
    int tile = 0;
    double cycles = 0;
};

Estimate fastest(const ConvSpec& spec, PassKind pass) {
    const ConvProblem problem = spec.problem();
    Estimate best;
    for (const int tile : {4, 2}) {
        if (tile == 4 && !tiles_of_four(spec, pass)) continue;
        const WinogradPlan plan =
            winograd_plans(winograd_problem(problem, pass, tile), this_machine(), 1).front();
        if (best.tile == 0 || plan.cycles < best.cycles) best = {tile, plan.cycles};
    }
    return best;
}

}  // namespace

WinogradChoice choose_winograd(const ConvSpec& spec, PassKind pass) {
    const std::string obstacle = obstacle_to(spec);
    if (spec.algorithm == ConvAlgorithm::winograd && !obstacle.empty()) {
        throw std::invalid_argument("algorithm is 'winograd', which cannot do this convolution: " +
                                    obstacle);
    }
    if (spec.algorithm == ConvAlgorithm::direct || !obstacle.empty()) {
        return {0, "direct: " + (obstacle.empty() ? "asked for" : obstacle)};
    }
    const bool automatic = spec.algorithm == ConvAlgorithm::automatic;
    const std::int64_t terms = terms_of(spec.shape, pass);
    if (automatic && terms < kTermsForTwo) {
        return {0, "direct: sums of " + std::to_string(terms) +
                       " terms are more accurate than Winograd's"};
    }
    const Estimate best = fastest(spec, pass);
    const double direct = direct_cycles(spec.problem(), this_machine());
    const double of_direct = direct > 0 ? best.cycles / direct : 1;
    const std::string ratio = two_digits(of_direct);
    if (automatic && best.cycles >= direct) {
        return {0, "direct: Winograd would take " + ratio + " of its time by estimate"};
    }
    std::string reason = name_of_tile(best.tile);
    reason += ": " + ratio + " of the direct time by estimate";
    return {best.tile, std::move(reason), of_direct};
}

}  // namespace dlprim
