// Scratch memory with one owner, aligned to the cache line so that vectors never straddle one, and
// in huge pages where it is large: scratch is read and written in many places at once, each of
// which would need a page table entry of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace dlprim {

class Buffer {
public:
    // Uninitialised room for `elements` floats. Throws std::bad_alloc.
    explicit Buffer(std::int64_t elements);

    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { operator delete[](data_, alignment()); }

    float* data() const { return data_; }

private:
    static constexpr std::size_t kLarge = std::size_t{1} << 18;
    static constexpr std::align_val_t kCacheLine{64};
    static constexpr std::align_val_t kHugePage{std::size_t{1} << 21};

    std::align_val_t alignment() const { return bytes_ >= kLarge ? kHugePage : kCacheLine; }

    std::size_t bytes_;
    float* data_;
};

}  // namespace dlprim
