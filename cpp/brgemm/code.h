// Executable memory with one owner. Pages are mapped writable, filled, and made executable by
// taking the write permission away: they are never writable and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dlprim {

class Code {
public:
    Code() = default;

    // Copies position-independent code to pages of its own.
    // Throws std::system_error when the operating system refuses memory or protection.
    explicit Code(std::span<const std::uint8_t> bytes);

    Code(Code&& other) noexcept;
    Code& operator=(Code&& other) noexcept;
    ~Code();

    // The entry point as a function of type Function; null when empty.
    template <typename Function>
    Function* entry() const {
        return reinterpret_cast<Function*>(pages_);
    }

    std::span<const std::uint8_t> bytes() const {
        return {static_cast<const std::uint8_t*>(pages_), size_};
    }

    std::size_t mapped_bytes() const { return mapped_; }

private:
    void* pages_ = nullptr;
    std::size_t size_ = 0;    // bytes of code
    std::size_t mapped_ = 0;  // bytes of address space, whole pages
};

}  // namespace dlprim
