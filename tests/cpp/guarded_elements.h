// Elements of one, two or four bytes by index, between pages that fault: what tests of code that
// only moves elements read and write. Unlike GuardedMemory, flush with the page behind it to the
// byte.
#pragma once

#include <cstdint>
#include <cstring>

#include "guarded_memory.h"
#include "jit/dtype.h"

namespace dlprim::testing {

inline constexpr std::uint32_t kUntouched = 0xA5A5A5A5;

// Bits of elements in memory of exactly their size, flush with a page that faults.
class Elements {
public:
    Elements(std::int64_t count, DType dtype, Fence fence)
        : count_(count),
          size_(size_of(dtype)),
          memory_((count * size_ + 3) / 4, fence),
          data_(reinterpret_cast<char*>(memory_.data()) +
                (fence == Fence::after ? (4 - count * size_ % 4) % 4 : 0)) {
        for (std::int64_t i = 0; i < count; ++i) set(i, kUntouched);
    }

    void clear() {
        for (std::int64_t i = 0; i < count_; ++i) set(i, 0);
    }

    // Values that differ from neighbours and from zero.
    void number() {
        for (std::int64_t i = 0; i < count_; ++i) {
            set(i, static_cast<std::uint32_t>(i + 1) * 2654435769U | 1U);
        }
    }

    void* data() const { return data_; }
    std::int64_t count() const { return count_; }

    std::uint32_t at(std::int64_t index) const {
        std::uint32_t bits = 0;
        std::memcpy(&bits, data_ + index * size_, static_cast<std::size_t>(size_));
        return bits;
    }
    void set(std::int64_t index, std::uint32_t bits) {
        std::memcpy(data_ + index * size_, &bits, static_cast<std::size_t>(size_));
    }

private:
    std::int64_t count_;
    std::int64_t size_;
    GuardedMemory memory_;
    char* data_;
};

inline int differences(const Elements& left, const Elements& right) {
    int count = 0;
    for (std::int64_t i = 0; i < left.count(); ++i) count += left.at(i) != right.at(i);
    return count;
}

}  // namespace dlprim::testing
