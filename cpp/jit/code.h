// Executable memory. Kernels share slabs, so that a thousand small ones take as many pages as
// their code fills, not a page each. A slab is mapped executable and never writable; new code is
// written to the file that its pages show.
//
// A slab is only ever appended to and is released as a whole when its last kernel is gone: a forked
// child shares the memory of the slabs it inherits, so nothing in them may change under its feet,
// and the child itself starts slabs of its own. So that a few old kernels do not keep a slab each,
// caches let go of their oldest code, which is generated anew if it is still asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dlprim {

// Code begins at multiples of this, a cache line, and is assembled at one: what is aligned stays
// so.
inline constexpr std::size_t kCodeAlignment = 64;

// Own pages cost a kernel whole ones, but are anonymous memory; shared ones look like a file.
enum class Pages : std::uint8_t { shared, own };

// One kernel's code with a share in its slab.
class Code {
public:
    Code() = default;

    // Places position-independent code.
    // Throws std::system_error when the operating system refuses memory or protection.
    explicit Code(std::span<const std::uint8_t> bytes, Pages pages = Pages::shared);

    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    Code(Code&&) noexcept = default;
    Code& operator=(Code&&) noexcept = default;
    ~Code() = default;

    // The entry point as a function of type Function; null when empty.
    template <typename Function>
    Function* entry() const {
        return reinterpret_cast<Function*>(const_cast<std::uint8_t*>(first_.get()));
    }

    std::span<const std::uint8_t> bytes() const { return {first_.get(), first_ ? size_ : 0}; }

    // Bytes that had ever been mapped for code when its slab was.
    std::int64_t mapped_before() const { return mapped_before_; }

private:
    std::shared_ptr<const std::uint8_t> first_;  // null when empty; owns its share of the slab
    std::size_t size_ = 0;
    std::int64_t mapped_before_ = 0;
};

// Executable memory that all living code and the free ends of its slabs take.
std::int64_t mapped_code_bytes();

// As much as slabs may take of it while code that nobody uses keeps any of them.
inline constexpr std::int64_t kMostMappedCode = std::int64_t{256} << 20;

// From now on calls this where more is mapped: who keeps code that nobody uses lets go of what has
// a mapped_before() below the given one.
void watch_mapped_code(void (*let_go)(std::int64_t mapped_before));

}  // namespace dlprim
