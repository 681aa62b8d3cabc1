// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/isa.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/optimizer.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/layers/channel_arithmetic-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// bfloat16's registers decide how many elements are taken at once: those of the copy.
using Values = ChannelVector<std::uint16_t>;

struct SquareRoot {
    HWY_INLINE FloatVector operator()(FloatVector x) const { return hn::Sqrt(x); }
};
struct Quotient {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const { return hn::Div(x, y); }
};

HWY_INLINE Values all(float value) { return all_of<std::uint16_t>(value); }

template <class Part>
HWY_INLINE void finish(const Parameter& it, const Values& weights, std::int64_t at, Part part) {
    store_floats(weights, it.weights + at, part);
    if (it.copy != nullptr) weights.store(it.copy + at, part);
}

struct SgdRow {
    const Parameter& it;
    const SgdStep& step;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t at, Part part) const {
        const Values weights = Values::load_floats(it.weights + at, part);
        Values slope = each(ProductSum(), all(step.weight_decay), weights,
                            Values::load_floats(it.gradient + at, part));
        if (it.first != nullptr) {
            const Values momentum = all(step.momentum);
            const Values velocity =
                each(ProductSum(), momentum, Values::load_floats(it.first + at, part), slope);
            store_floats(velocity, it.first + at, part);
            slope = step.nesterov ? each(ProductSum(), momentum, velocity, slope) : velocity;
        }
        finish(it, each(ProductDifference(), all(step.learning_rate), slope, weights), at, part);
    }
};

struct AdamwRow {
    const Parameter& it;
    const AdamwStep& step;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t at, Part part) const {
        const Values gradient = Values::load_floats(it.gradient + at, part);
        const Values first = Values::load_floats(it.first + at, part);
        const Values mean = each(ProductSum(), all(step.beta1), first, all(step.rest1) * gradient);
        const Values second = Values::load_floats(it.second + at, part);
        const Values square =
            each(ProductSum(), all(step.beta2), second, all(step.rest2) * gradient * gradient);
        store_floats(mean, it.first + at, part);
        store_floats(square, it.second + at, part);
        const Values root =
            each(ProductSum(), each(SquareRoot(), square), all(step.root_scale), all(step.epsilon));
        const Values decayed = Values::load_floats(it.weights + at, part) * all(step.decay);
        finish(
            it,
            each(ProductDifference(), all(step.step_size), each(Quotient(), mean, root), decayed),
            at, part);
    }
};

void sgd(const SgdStep& step, const Parameter& it) {
    along_channels<std::uint16_t, 1>(it.count, SgdRow{it, step});
}

void adamw(const AdamwStep& step, const Parameter& it) {
    along_channels<std::uint16_t, 1>(it.count, AdamwRow{it, step});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {
namespace {

// A multiple of every vector, so that only ends of parameters are ragged.
constexpr std::int64_t kTaskElements = 16 * 1024;

Parameter part_of(const Parameter& it, Range range) {
    const auto from = [&](auto* pointer) {
        return pointer == nullptr ? pointer : pointer + range.begin;
    };
    return {range.size(),   from(it.weights), from(it.gradient),
            from(it.first), from(it.second),  from(it.copy)};
}

template <class Step>
void run(void (*function)(const Step&, const Parameter&), const Step& step,
         const std::vector<Parameter>& parameters) {
    // The first task of every parameter, and behind them the number of all tasks.
    std::vector<std::int64_t> first_task{0};
    for (const Parameter& it : parameters) {
        first_task.push_back(first_task.back() + Blocks{it.count, kTaskElements}.count());
    }
    parallel_for(first_task.back(), [&](std::int64_t task) {
        const auto after = std::upper_bound(first_task.begin(), first_task.end(), task);
        const auto index = static_cast<std::size_t>(after - first_task.begin()) - 1;
        const Parameter& it = parameters[index];
        const Blocks blocks{it.count, kTaskElements};
        function(step, part_of(it, blocks.at(task - first_task[index])));
    });
}

}  // namespace

void run_step(const SgdStep& step, const std::vector<Parameter>& parameters) {
    run(DLPRIM_FOR_ISA(usable_isa(), sgd), step, parameters);
}
void run_step(const AdamwStep& step, const std::vector<Parameter>& parameters) {
    run(DLPRIM_FOR_ISA(usable_isa(), adamw), step, parameters);
}

}  // namespace dlprim
#endif
