// Memory that lies between two pages on which any access faults, flush with one of them: a kernel
// that reads or writes a single byte beyond its operand on that side stops the test.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlprim::testing {

enum class Fence : std::uint8_t { before, after };

class GuardedMemory {
public:
    // Zeroed room for `elements` floats.
    GuardedMemory(std::int64_t elements, Fence fence);
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&&) = delete;
    ~GuardedMemory();

    float* data() const { return data_; }
    void make_read_only();

private:
    std::byte* pages_;
    std::size_t mapped_;
    float* data_;
};

}  // namespace dlprim::testing
