// Scratch memory with one owner, aligned to the cache line so that vectors never straddle one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace dlprim {

class Buffer {
public:
    // Uninitialised room for `elements` floats. Throws std::bad_alloc.
    explicit Buffer(std::int64_t elements)
        : data_(static_cast<float*>(operator new[](
              static_cast<std::size_t>(elements) * sizeof(float), kAlignment))) {}

    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { operator delete[](data_, kAlignment); }

    float* data() const { return data_; }

private:
    static constexpr std::align_val_t kAlignment{64};

    float* data_;
};

}  // namespace dlprim
