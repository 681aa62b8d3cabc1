// Optimiser steps on states of a network: parameters and what is known of them are changed where
// they lie. What a schedule changes is an input, how often a parameter was updated a state; so one
// network serves all steps of a training run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/network_step.h"
#include "primitives/layers/optimizer.h"

namespace dlprim {

class Network;

// Of a parameter. Values are weights, three states and a bfloat16 copy of the weights, as in
// ParameterState; -1 for what there is not. What each one becomes lies where it was.
struct UpdatedParameter {
    int gradient = -1;
    std::array<int, 5> values{-1, -1, -1, -1, -1};
    std::array<int, 5> next{-1, -1, -1, -1, -1};
    std::int64_t number = 0;  // among counts
};

struct UpdateValues {
    std::vector<UpdatedParameter> parameters = {};
    int settings = -1;  // float64, as the rule has them
    int counts = -1;    // int64, how often each parameter was updated before; or -1
    int factor = -1;    // float32, what all gradients are multiplied by; or -1
};

// Throws std::invalid_argument for values of other types or sizes.
NetworkStep update_step(const Network& network, const UpdateRule& rule, const UpdateValues& values,
                        std::string label);

// Of gradients of float32: their norm, and what they are multiplied by where it exceeds `limit`, a
// float64; both results are float32.
struct ClippedGradients {
    std::vector<int> gradients = {};
    int limit = -1;
    int norm = -1;
    int factor = -1;
};

// Throws std::invalid_argument for values of other types.
NetworkStep clip_step(const Network& network, const ClippedGradients& values, std::string label);

}  // namespace dlprim
