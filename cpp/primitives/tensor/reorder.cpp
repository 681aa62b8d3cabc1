#include "primitives/tensor/reorder.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "primitives/tensor/pack.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Indices of a task.
constexpr std::int64_t kTask = 4096;

// One dimension of both layouts as distances from its first element, in elements.
struct Axis {
    std::int64_t extent = 0;
    std::vector<std::int64_t> from = {};  // of the indices that exist
    std::vector<std::int64_t> to = {};    // of those that are stored
};

std::vector<Axis> axes_of(const Layout& from, const Layout& to) {
    std::vector<Axis> axes;
    for (const LayoutDimension& dimension : to.dimensions) {
        Axis axis{.extent = dimension.extent};
        for (std::int64_t i = 0; i < dimension.extent; ++i) {
            axis.from.push_back(from.dimension(dimension.letter).offset(i));
        }
        for (std::int64_t i = 0; i < dimension.padded(); ++i) {
            axis.to.push_back(dimension.offset(i));
        }
        axes.push_back(axis);
    }
    return axes;
}

void store(const char* src, DType from, char* dst, DType to) {
    if (from == to) {
        std::memcpy(dst, src, static_cast<std::size_t>(size_of(to)));
        return;
    }
    float value = 0;
    std::memcpy(&value, src, sizeof value);
    std::uint16_t half = 0;
    round_to_bf16(&value, &half, 1);
    std::memcpy(dst, &half, sizeof half);
}

}  // namespace

void reorder(const Layout& from, const void* src, const Layout& to, void* dst) {
    if (from.dtype != to.dtype && (from.dtype != DType::f32 || to.dtype != DType::bf16)) {
        throw std::invalid_argument("a tensor cannot be reordered from " +
                                    std::string(name_of(from.dtype)) + " to " +
                                    std::string(name_of(to.dtype)));
    }
    const std::vector<Axis> axes = axes_of(from, to);
    std::int64_t stored = 1;
    for (const Axis& axis : axes) stored *= static_cast<std::int64_t>(axis.to.size());
    const Blocks tasks{stored, kTask};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        for (std::int64_t i = tasks.at(task).begin; i < tasks.at(task).end; ++i) {
            std::int64_t rest = i, source = 0, target = 0;
            bool is_there = true;
            for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
                const auto index =
                    static_cast<std::size_t>(rest % static_cast<std::int64_t>(axis->to.size()));
                rest /= static_cast<std::int64_t>(axis->to.size());
                target += axis->to[index];
                is_there = is_there && index < axis->from.size();
                if (is_there) source += axis->from[index];
            }
            char* const element = static_cast<char*>(dst) + target * size_of(to.dtype);
            if (is_there) {
                store(static_cast<const char*>(src) + source * size_of(from.dtype), from.dtype,
                      element, to.dtype);
            } else {
                std::memset(element, 0, static_cast<std::size_t>(size_of(to.dtype)));
            }
        }
    });
}

}  // namespace dlprim
