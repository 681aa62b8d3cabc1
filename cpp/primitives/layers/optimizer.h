// Optimiser steps in one pass over memory: every value of a parameter, its gradient and its state
// is read once and written once, and a bfloat16 copy of the parameter leaves in the same pass.
#pragma once

#include <cstdint>
#include <vector>

namespace dlprim {

struct ParameterState {
    std::int64_t count = 0;
    float* weights = nullptr;
    const float* gradient = nullptr;
    float* first = nullptr;         // velocity, or first moment (Adam); null: without momentum
    float* second = nullptr;        // second moment (Adam, RMSprop)
    float* third = nullptr;         // mean of gradients (RMSprop); null: not centred
    std::uint16_t* copy = nullptr;  // weights rounded to bfloat16, or null
    float minus_step_size = 0;      // Adam's, corrected for how often this one was updated
    float root_scale = 1;
};

// g = gradient + weight_decay * w; v = momentum * v + g; w -= learning_rate * (nesterov ? g +
// momentum * v : v). Without momentum w -= learning_rate * g.
struct SgdStep {
    float learning_rate = 0;
    float momentum = 0;
    float weight_decay = 0;
    bool nesterov = false;
};

// g = gradient + penalty * w; w *= decay; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 -
// beta2) * g^2; w -= step_size * m / (sqrt(v) * root_scale + epsilon). Source: arXiv 1711.05101,
// algorithm 2, whose corrections of the bias the caller has put into each parameter's own numbers.
// AdamW has a decay, Adam a penalty.
struct AdamStep {
    float decay = 1;
    float penalty = 0;
    float beta1 = 0;
    float beta2 = 0;
    float rest1 = 1;  // 1 - beta1, rounded once
    float rest2 = 1;
    float epsilon = 0;
};

// g = gradient + weight_decay * w; s = alpha * s + (1 - alpha) * g^2; centred: m = alpha * m +
// (1 - alpha) * g, and s - m^2 takes the place of s; d = g / (sqrt(s) + epsilon); with momentum
// v = momentum * v + d takes the place of d; w -= learning_rate * d. v, s and m are first, second
// and third.
struct RmspropStep {
    float learning_rate = 0;
    float alpha = 0;
    float rest = 1;  // 1 - alpha, rounded once
    float momentum = 0;
    float weight_decay = 0;
    float epsilon = 0;
};

void run_step(const SgdStep& step, const std::vector<ParameterState>& parameters);
void run_step(const AdamStep& step, const std::vector<ParameterState>& parameters);
void run_step(const RmspropStep& step, const std::vector<ParameterState>& parameters);

}  // namespace dlprim
