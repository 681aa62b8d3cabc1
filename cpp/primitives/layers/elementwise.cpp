// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/elementwise.h"

#include <cstdint>

#include "jit/isa.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/elementwise.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/layers/channel_arithmetic-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Vectors that are under way together.
constexpr std::int64_t kVectors = 4;

template <class Element, Elementwise kOperation>
struct Row {
    const Element* first;
    const Element* second;
    Element* out;

    template <std::int64_t kCount, class Part>
    HWY_INLINE void columns(std::int64_t column, Part part) const {
        using Vector = ChannelVector<Element>;
        for (std::int64_t i = 0; i < kCount; ++i) {
            const std::int64_t at = column + i * Vector::kChannels;
            auto value = Vector::load(first + at, part);
            if constexpr (kOperation == Elementwise::relu_backward) {
                value = each(Passed(), value, Vector::load(second + at, part));
            } else if constexpr (kOperation != Elementwise::relu) {
                value.add(Vector::load(second + at, part));
            }
            if constexpr (kOperation == Elementwise::relu || kOperation == Elementwise::sum_relu) {
                value.relu();
            }
            value.store(out + at, part);
        }
    }
};

template <class Element, Elementwise kOperation>
void run(const ElementwiseOperands& it) {
    along_channels<Element, kVectors>(
        it.count, Row<Element, kOperation>{static_cast<const Element*>(it.first),
                                           static_cast<const Element*>(it.second),
                                           static_cast<Element*>(it.out)});
}

using Function = void (*)(const ElementwiseOperands&);

template <class Element>
Function function_of(Elementwise operation) {
    switch (operation) {
        case Elementwise::relu: return run<Element, Elementwise::relu>;
        case Elementwise::sum: return run<Element, Elementwise::sum>;
        case Elementwise::sum_relu: return run<Element, Elementwise::sum_relu>;
        case Elementwise::relu_backward: return run<Element, Elementwise::relu_backward>;
    }
    return nullptr;
}

Function elementwise_of(Elementwise operation, DType dtype) {
    return dtype == DType::f32 ? function_of<float>(operation)
                               : function_of<std::uint16_t>(operation);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

// A multiple of every vector, so that only the last task has a ragged end.
static constexpr std::int64_t kTaskElements = 32 * 1024;

void run_elementwise(Elementwise operation, DType dtype, const ElementwiseOperands& operands) {
    const auto run = DLPRIM_FOR_ISA(usable_isa(), elementwise_of)(operation, dtype);
    const Blocks tasks{operands.count, kTaskElements};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        const std::int64_t bytes = range.begin * size_of(dtype);
        ElementwiseOperands part{.count = range.size(),
                                 .first = static_cast<const char*>(operands.first) + bytes,
                                 .out = static_cast<char*>(operands.out) + bytes};
        if (operands.second != nullptr) {
            part.second = static_cast<const char*>(operands.second) + bytes;
        }
        run(part);
    });
}

}  // namespace dlprim
#endif
