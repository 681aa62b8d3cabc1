// What tests of the driver share: random numbers, operands of either type between pages that fault,
// and random schedules that fit a description.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "draw.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/reorder/pack.h"
#include "typed_problem.h"

namespace dlprim::testing {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

inline double drawn_value(Draw& draw, Values values) {
    return values == Values::eighths ? static_cast<double>(draw.from(-8, 8)) / 8 : draw.normal();
}

// Elements of either type between pages that fault.
class Matrix {
public:
    Matrix(std::int64_t elements, DType dtype, Fence fence)
        : dtype_(dtype), bytes_(elements * size_of(dtype), fence) {
        std::fill_n(bytes_.data(), bytes_.size(), std::byte{0xa5});
    }

    void set(std::int64_t index, double number) {
        const auto value = static_cast<float>(number);
        std::uint16_t half = 0;
        round_to_bf16(&value, &half, 1);
        const void* const from = dtype_ == DType::f32 ? static_cast<const void*>(&value)
                                                      : static_cast<const void*>(&half);
        std::memcpy(bytes_.data() + index * size_of(dtype_), from, at(size_of(dtype_)));
    }
    std::vector<std::byte> content() const {
        return {bytes_.data(), bytes_.data() + bytes_.size()};
    }
    void* data() const { return bytes_.data(); }

private:
    DType dtype_;
    GuardedBytes bytes_;
};

// Levels of all loops in any order, with steps that fall and ends that the description asks for.
inline Schedule drawn_schedule(Draw& draw, const Contraction& contraction) {
    Schedule schedule;
    // Where entries are gathered: all of them for several indices of the batch, or some for one.
    const bool together = contraction.entry_loop < 0 || draw.once_in(2);
    for (const ContractionLoop& loop : contraction.loops) {
        for (std::int64_t i = draw.from(1, contraction.loops.size() > 5 ? 2 : 3); i > 0; --i) {
            schedule.levels.push_back({loop.letter, 1, !loop.sum && draw.once_in(2)});
        }
    }
    draw.shuffle(schedule.levels);
    for (std::size_t i = 0; i < contraction.loops.size(); ++i) {
        const ContractionLoop& loop = contraction.loops[i];
        const int index = static_cast<int>(i);
        const bool whole = (loop.sum && contraction.c_type != DType::f32) ||
                           (together && index == contraction.entry_loop);
        std::int64_t step = loop.extent + 2;
        Level* last = nullptr;
        for (Level& level : schedule.levels) {
            if (level.letter != loop.letter) continue;
            level.step = step = draw.from(whole ? loop.extent : 1, step);
            last = &level;
        }
        // Only what is an extent of the kernel, or gathered for it, takes more than one index.
        const bool wide = (index == contraction.rows.loop && contraction.rows.unit == 1) ||
                          (index == contraction.batch.loop && together) ||
                          index == contraction.entry_loop;
        if (!wide) last->step = 1;
    }
    return schedule;
}

}  // namespace dlprim::testing
