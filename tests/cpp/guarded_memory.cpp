#include "guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace dlprim::testing {
namespace {

std::size_t page_size() {
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

void protect(std::byte* pages, std::size_t bytes, int access) {
    if (mprotect(pages, bytes, access) != 0) {
        throw std::system_error(errno, std::generic_category(), "mprotect");
    }
}

}  // namespace

GuardedMemory::GuardedMemory(std::int64_t elements, Fence fence) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
    const std::size_t page = page_size();
    const std::size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    // Not reserved: matrices with huge leading dimensions are many times larger than memory.
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* pages = mmap(nullptr, mapped_, PROT_NONE, flags, -1, 0);
    if (pages == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    pages_ = static_cast<std::byte*>(pages);
    if (inner > 0) protect(pages_ + page, inner, PROT_READ | PROT_WRITE);
    const std::size_t start = fence == Fence::before ? page : page + inner - bytes;
    data_ = reinterpret_cast<float*>(pages_ + start);
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), mapped_(other.mapped_), data_(other.data_) {}

GuardedMemory::~GuardedMemory() {
    if (pages_ != nullptr) munmap(pages_, mapped_);
}

void GuardedMemory::make_read_only() {
    const std::size_t page = page_size();
    if (mapped_ > 2 * page) protect(pages_ + page, mapped_ - 2 * page, PROT_READ);
}

}  // namespace dlprim::testing
