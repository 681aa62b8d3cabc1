#include "allocation_count.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace dlprim::testing {
namespace {

std::atomic<std::int64_t> calls{0};
std::atomic<std::int64_t> scratch_bytes{0};

void count() { ++calls; }

void* taken(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    count();
    return memory;
}

void* plain(std::size_t bytes) { return taken(std::malloc(bytes == 0 ? 1 : bytes)); }

void* aligned(std::size_t bytes, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    scratch_bytes += static_cast<std::int64_t>(bytes);
    return taken(std::aligned_alloc(unit, (bytes + unit) / unit * unit));
}

}  // namespace

Allocations allocations() { return {calls, scratch_bytes}; }

}  // namespace dlprim::testing

using dlprim::testing::aligned;
using dlprim::testing::plain;

void* operator new(std::size_t bytes) { return plain(bytes); }
void* operator new[](std::size_t bytes) { return plain(bytes); }
void* operator new(std::size_t bytes, std::align_val_t unit) { return aligned(bytes, unit); }
void* operator new[](std::size_t bytes, std::align_val_t unit) { return aligned(bytes, unit); }

// std::stable_sort takes its buffer here and gives it back to the ordinary operator delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    dlprim::testing::count();
    return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& nothrow) noexcept {
    return operator new(bytes, nothrow);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
