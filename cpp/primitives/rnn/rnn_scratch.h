// Deals one piece of scratch out to its uses, each on a cache line of its own. With a null base it
// only counts.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

class ScratchCutter {
public:
    explicit ScratchCutter(char* base) : base_(base) {}

    char* take(std::int64_t bytes) {
        char* const piece = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (bytes + kLine - 1) / kLine * kLine;
        return piece;
    }
    float* take_floats(std::int64_t count) {
        return reinterpret_cast<float*>(take(count * size_of(DType::f32)));
    }

    std::int64_t bytes() const { return used_; }

private:
    static constexpr std::int64_t kLine = 64;

    char* base_;
    std::int64_t used_ = 0;
};

}  // namespace dlprim
