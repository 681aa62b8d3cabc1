#include "primitives/winograd/conv_winograd.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "primitives/conv/conv2d.h"
#include "primitives/winograd/winograd_schedule.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaps = 3;

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
    return kTaps * kTaps * (pass == PassKind::forward ? shape.group_C() : shape.group_K());
}

bool tiles_of_four(const ConvSpec& spec, PassKind pass) {
    const bool weights = pass == PassKind::backward_weights;
    const std::int64_t terms = weights ? kTermsForFourOfWeights : kTermsForFour;
    return !spec.high_accuracy && terms_of(spec.shape, pass) >= terms;
}

// Why Winograd cannot compute a convolution, empty where it can.
std::string obstacle_to(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const auto pair = [](std::int64_t h, std::int64_t w) {
        return std::to_string(h) + "x" + std::to_string(w);
    };
    if (shape.R != kTaps || shape.S != kTaps) {
        return "the filter is " + pair(shape.R, shape.S) + ", expected 3x3";
    }
    if (shape.stride_h != 1 || shape.stride_w != 1) {
        return "the stride is " + pair(shape.stride_h, shape.stride_w) + ", expected 1";
    }
    if (shape.dilation_h != 1 || shape.dilation_w != 1) {
        return "the dilation is " + pair(shape.dilation_h, shape.dilation_w) + ", expected 1";
    }
    if (shape.is_depthwise()) return "it is depthwise, which is no product of matrices";
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

}  // namespace

ConvWinograd::ConvWinograd(const ConvSpec& spec) : problem_{spec.shape, spec.dtype, spec.layout} {
    const std::string obstacle = obstacle_to(spec);
    if (spec.algorithm == ConvAlgorithm::winograd && !obstacle.empty()) {
        throw std::invalid_argument("algorithm is 'winograd', which cannot do this convolution: " +
                                    obstacle);
    }
    for (const PassKind pass :
         {PassKind::forward, PassKind::backward_data, PassKind::backward_weights}) {
        choose(pass, spec, obstacle);
    }
}

void ConvWinograd::choose(PassKind pass, const ConvSpec& spec, const std::string& obstacle) {
    Choice& choice = choices_[index(pass)];
    if (spec.algorithm == ConvAlgorithm::direct || !obstacle.empty()) {
        choice.reason = "direct: " + (obstacle.empty() ? "asked for" : obstacle);
        return;
    }
    const std::int64_t terms = terms_of(spec.shape, pass);
    if (spec.algorithm == ConvAlgorithm::automatic && terms < kTermsForTwo) {
        choice.reason =
            "direct: sums of " + std::to_string(terms) + " terms are more accurate than Winograd's";
        return;
    }
    const bool weights = pass == PassKind::backward_weights;
    WinogradPlan best;
    int best_tile = 0;
    for (const int tile : {4, 2}) {
        if (tile == 4 && !tiles_of_four(spec, pass)) continue;
        const WinogradPlan plan =
            weights ? winograd_weights_plans(problem_, tile, this_machine(), 1).front()
                    : winograd_plans(problem_of(pass, tile), this_machine(), 1).front();
        if (best_tile != 0 && plan.cycles >= best.cycles) continue;
        best = plan;
        best_tile = tile;
    }
    const double direct = direct_cycles(problem_, this_machine());
    const std::string ratio = two_digits(direct > 0 ? best.cycles / direct : 1);
    if (spec.algorithm == ConvAlgorithm::automatic && best.cycles >= direct) {
        choice.reason = "direct: Winograd would take " + ratio + " of its time by estimate";
        return;
    }
    choice = {best_tile, name_of_tile(best_tile) + ": " + ratio + " of the direct time by estimate",
              best.schedule};
    set_schedule(pass, best.schedule);
}

WinogradProblem ConvWinograd::problem_of(PassKind pass, int tile) const {
    return pass == PassKind::forward ? winograd_forward(problem_, tile)
                                     : winograd_backward_data(problem_, tile);
}

std::int64_t ConvWinograd::transformed_floats(PassKind which) const {
    return runs(which) ? pass(which)->transformed_floats() : 0;
}

void ConvWinograd::transform(PassKind which, const void* weights, float* transformed) const {
    pass(which)->transform_weights(weights, transformed);
}

std::shared_ptr<const WinogradPass> ConvWinograd::pass(PassKind pass) const {
    const std::lock_guard lock(mutex_);
    return passes_.at(index(pass));
}

std::shared_ptr<const WinogradWeightsPass> ConvWinograd::weights_pass() const {
    const std::lock_guard lock(mutex_);
    return weights_pass_;
}

std::vector<Loop> ConvWinograd::loops(PassKind pass) const {
    const int tile = choices_[index(pass)].tile;
    return pass == PassKind::backward_weights ? WinogradWeightsPass::loops(problem_, tile)
                                              : WinogradPass::loops(problem_of(pass, tile));
}

Schedule ConvWinograd::schedule(PassKind pass) const {
    const std::lock_guard lock(mutex_);
    return choices_[index(pass)].schedule;
}

void ConvWinograd::set_schedule(PassKind pass, const Schedule& schedule) {
    const int tile = choices_[index(pass)].tile;
    if (pass == PassKind::backward_weights) {
        auto made = std::make_shared<const WinogradWeightsPass>(problem_, tile, schedule);
        const std::lock_guard lock(mutex_);
        weights_pass_ = std::move(made);
        choices_[index(pass)].schedule = schedule;
        return;
    }
    auto made = std::make_shared<const WinogradPass>(problem_of(pass, tile), schedule);
    const std::lock_guard lock(mutex_);
    passes_.at(index(pass)) = std::move(made);
    choices_[index(pass)].schedule = schedule;
}

std::vector<Schedule> ConvWinograd::candidates(PassKind pass, int count) const {
    const int tile = choices_[index(pass)].tile;
    std::vector<Schedule> schedules;
    for (const WinogradPlan& plan :
         pass == PassKind::backward_weights
             ? winograd_weights_plans(problem_, tile, this_machine(), count)
             : winograd_plans(problem_of(pass, tile), this_machine(), count)) {
        schedules.push_back(plan.schedule);
    }
    return schedules;
}

std::vector<std::string> ConvWinograd::kernel_names(PassKind which) const {
    return which == PassKind::backward_weights ? weights_pass()->kernel_names()
                                               : pass(which)->kernel_names();
}

}  // namespace dlprim
