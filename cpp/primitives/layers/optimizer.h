// Optimiser steps in one pass over memory: every value of a parameter, its gradient and its state
// is read once and written once, and a bfloat16 copy of the parameter leaves in the same pass. All
// numbers of a step are read when it runs, so that a schedule changes no kernel.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "primitives/tensor/partition.h"
#include "rows/row_kernel.h"

namespace dlprim {

// A number of a step as kernels read it: made in double, and rounded at the end.
inline float rounded_once(double value) { return static_cast<float>(value); }

struct ParameterState {
    std::int64_t count = 0;
    DType dtype = DType::f32;  // of all but the copy; of bf16 each is rounded where it is stored
    void* weights = nullptr;
    const void* gradient = nullptr;
    void* first = nullptr;          // velocity, or first moment (Adam, LAMB); null: no momentum
    void* second = nullptr;         // second moment (Adam, LAMB, RMSprop)
    void* third = nullptr;          // of RMSprop: mean of gradients; null: not centred
                                    // of Adam: largest second moment (AMSGrad); null: the latest
    std::uint16_t* copy = nullptr;  // weights rounded to bfloat16, or null
    std::int64_t steps = 0;         // how often it was updated, this time included (Adam, LAMB)
    float scale = 1;                // of the gradient, in front of all else
};

// With the settings that each one takes, in order.
//
// sgd (learning rate, momentum, weight decay): g = gradient + weight_decay * w; v = momentum * v +
// g; w -= learning_rate * (nesterov ? g + momentum * v : v). Without momentum w -= learning_rate *
// g.
//
// adam (learning rate, beta1, beta2, epsilon, weight decay): g = gradient + weight_decay * w; m =
// beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; w -= learning_rate / (1 -
// beta1^steps) * m / (sqrt(v / (1 - beta2^steps)) + epsilon). AdamW does not add to the gradient
// and begins with w *= 1 - learning_rate * weight_decay. Source: arXiv 1711.05101, algorithm 2.
// With a third state that is the largest v so far and takes the place of v (AMSGrad, OpenReview
// ryQu7f-RZ).
//
// lamb (the same): m and v as of AdamW, d = m / (1 - beta1^steps) / (sqrt(v / (1 - beta2^steps)) +
// epsilon) + weight_decay * w; w -= learning_rate * |w| / |d| * d, where none of the norms is zero;
// two passes, as the first finds these. Source: arXiv 1904.00962, algorithm 2.
//
// rmsprop (learning rate, alpha, epsilon, weight decay, momentum): g = gradient + weight_decay * w;
// s = alpha * s + (1 - alpha) * g^2; centred: m = alpha * m + (1 - alpha) * g, and s - m^2 takes
// the place of s; d = g / (sqrt(s) + epsilon); with momentum v = momentum * v + d takes the place
// of d; w -= learning_rate * d. v, s and m are first, second and third.
enum class UpdateKind : std::uint8_t { sgd, adam, lamb, rmsprop };

struct UpdateRule {
    UpdateKind kind = UpdateKind::sgd;
    bool is_variant = false;  // sgd: nesterov; adam: AdamW

    bool counts_steps() const { return kind == UpdateKind::adam || kind == UpdateKind::lamb; }
    std::size_t settings() const { return kind == UpdateKind::sgd ? 3 : 5; }
};

// "sgd", "nesterov", "adam", "adamw", "lamb" or "rmsprop"; throws std::invalid_argument for others.
UpdateRule update_rule(const std::string& name);

// A rule for parameters of known sizes that have known states; their arrays and the settings are
// those of a call, which allocates nothing. Several threads may call it at once.
class Update {
public:
    Update(const UpdateRule& rule, std::span<const ParameterState> parameters);

    void run(const double* settings, std::span<const ParameterState> parameters) const;

private:
    enum class Field : std::uint8_t;
    struct Numbers;
    class Writer;
    struct Program {
        std::vector<Field> fields = {};
        std::shared_ptr<const RowKernel> kernel = {};
    };

    struct Part;

    static std::size_t index_of(const ParameterState& it);
    // Calls body(parameter, range, number) for all parts of all parameters.
    template <class Body>
    void for_parts(std::span<const ParameterState> parameters, const Body& body) const;
    void run_lamb(const double* settings, std::span<const ParameterState> parameters) const;

    UpdateRule rule_;
    std::array<Program, 16> programs_ = {};
    std::array<Program, 16> measures_ = {};  // of lamb, in front: moments, and squares of norms
    // The first task of every parameter, and behind them the number of all tasks.
    std::vector<std::int64_t> first_task_{0};
};

}  // namespace dlprim
