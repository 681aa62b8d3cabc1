// Float32 or bfloat16 numbers between pages that fault, read and written as float: for tests of
// code that is one for both types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "jit/dtype.h"
#include "primitives/reorder/pack.h"
#include "typed_problem.h"

namespace dlprim::testing {

inline constexpr float kPoison = -12288;  // the same in bfloat16

// Poisoned at first.
class Numbers {
public:
    Numbers(DType dtype, std::int64_t count, Fence fence)
        : dtype_(dtype), count_(count), memory_(count * size_of(dtype), fence) {
        poison();
    }
    std::byte* address(std::int64_t index) const {
        return memory_.data() + index * size_of(dtype_);
    }
    float* floats() const { return reinterpret_cast<float*>(memory_.data()); }
    void set(std::int64_t index, float value) const {
        if (dtype_ == DType::f32) {
            std::memcpy(address(index), &value, sizeof value);
            return;
        }
        std::uint16_t half = 0;
        round_to_bf16(&value, &half, 1);
        std::memcpy(address(index), &half, sizeof half);
    }
    float get(std::int64_t index) const {
        float value = 0;
        std::uint16_t half = 0;
        std::memcpy(dtype_ == DType::f32 ? static_cast<void*>(&value) : &half, address(index),
                    static_cast<std::size_t>(size_of(dtype_)));
        if (dtype_ == DType::bf16) widen_to_f32(&half, &value, 1);
        return value;
    }
    void poison() const {
        for (std::int64_t i = 0; i < count_; ++i) set(i, kPoison);
    }
    void draw(unsigned seed) const {
        std::mt19937 random(seed);
        std::normal_distribution<float> values;
        for (std::int64_t i = 0; i < count_; ++i) set(i, values(random));
    }

private:
    DType dtype_;
    std::int64_t count_;
    GuardedBytes memory_;
};

}  // namespace dlprim::testing
