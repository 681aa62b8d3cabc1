#include "brgemm/code.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace dlprim {
namespace {

[[noreturn]] void refuse(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Code::Code(std::span<const std::uint8_t> bytes) : size_(bytes.size()) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size_ + page - 1) / page * page;
    void* pages =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) refuse("cannot map memory for a generated kernel");
    std::memcpy(pages, bytes.data(), size_);
    if (mprotect(pages, mapped_, PROT_READ | PROT_EXEC) != 0) {
        const int error = errno;
        munmap(pages, mapped_);
        errno = error;
        refuse("cannot make a generated kernel executable");
    }
    pages_ = pages;
}

Code::Code(Code&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Code& Code::operator=(Code&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
}

Code::~Code() {
    if (pages_ != nullptr) munmap(pages_, mapped_);
}

}  // namespace dlprim
