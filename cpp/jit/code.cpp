#include "jit/code.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <vector>

#include "jit/cache.h"

namespace dlprim {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{1} << 18;

// What is mapped between one time that old code is let go of and the next.
constexpr std::int64_t kMappedBetween = kMostMappedCode / 8;

std::atomic<std::int64_t> mapped_bytes{0};
std::atomic<std::int64_t> mapped_ever{0};

[[noreturn]] void refuse(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

std::size_t rounded(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

std::size_t whole_pages(std::size_t bytes) {
    return rounded(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

class CodeSlab {
public:
    // Pages that show a file, through which code is appended.
    explicit CodeSlab(std::size_t bytes) : CodeSlab() {
        file_ = memfd_create("dlprim-kernels", MFD_CLOEXEC);
        if (file_ < 0) refuse("cannot create memory for generated kernels");
        if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
            refuse("cannot reserve memory for generated kernels");
        }
        map(bytes, PROT_READ | PROT_EXEC, MAP_SHARED);
    }

    // Holds this code and no other, in pages without a file behind them.
    explicit CodeSlab(std::span<const std::uint8_t> code) : CodeSlab() {
        map(whole_pages(code.size()), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        std::memcpy(pages_, code.data(), code.size());
        if (mprotect(pages_, size_, PROT_READ | PROT_EXEC) != 0) {
            refuse("cannot make generated kernels executable");
        }
    }

    CodeSlab(const CodeSlab&) = delete;
    CodeSlab& operator=(const CodeSlab&) = delete;
    ~CodeSlab() {
        seal();
        if (size_ > 0) munmap(pages_, size_);
        mapped_bytes -= static_cast<std::int64_t>(size_);
    }

    const std::uint8_t* pages() const { return pages_; }
    std::int64_t mapped_before() const { return mapped_before_; }

    bool has_room(std::size_t bytes) const { return used_ + bytes <= size_; }

    // Nothing will be appended any more; gives the file descriptor back.
    void seal() {
        if (file_ >= 0) close(file_);
        file_ = -1;
    }

    const std::uint8_t* append(std::span<const std::uint8_t> code) {
        const ssize_t written = pwrite(file_, code.data(), code.size(), static_cast<off_t>(used_));
        if (written >= 0 && written != std::ssize(code)) errno = ENOSPC;
        if (written != std::ssize(code)) refuse("cannot write generated kernels to their memory");
        const std::uint8_t* placed = pages_ + used_;
        used_ = rounded(used_ + code.size(), kCodeAlignment);
        return placed;
    }

private:
    // For the others: what is complete is destroyed when they throw.
    CodeSlab() = default;

    void map(std::size_t bytes, int protection, int flags) {
        void* pages = mmap(nullptr, bytes, protection, flags, file_, 0);
        if (pages == MAP_FAILED) refuse("cannot map memory for generated kernels");
        pages_ = static_cast<std::uint8_t*>(pages);
        size_ = bytes;
        mapped_bytes += static_cast<std::int64_t>(size_);
        mapped_before_ = mapped_ever.fetch_add(static_cast<std::int64_t>(size_));
    }

    int file_ = -1;
    std::uint8_t* pages_ = nullptr;
    std::size_t size_ = 0;
    std::size_t used_ = 0;
    std::int64_t mapped_before_ = 0;
};

namespace {

using Watchers = std::vector<void (*)(std::int64_t)>;

// The slab that new code goes to, and who is told when there are too many.
struct Filling {
    std::mutex mutex;
    std::shared_ptr<CodeSlab> slab;
    Watchers watchers;
    std::int64_t told_at = 0;  // mapped_ever

    void before_fork() { mutex.lock(); }
    void after_fork_in_parent() { mutex.unlock(); }
    void after_fork_in_child() {
        slab.reset();  // the parent goes on filling it
        mutex.unlock();
    }
};

// Calls watchers without the lock, as they take their own.
void keep_few_mapped() {
    const std::int64_t now = mapped_ever;
    if (mapped_bytes <= kMostMappedCode) return;
    Watchers watchers;
    {
        auto& filling = one_of_process<Filling>();
        const std::lock_guard lock(filling.mutex);
        if (now < filling.told_at + kMappedBetween) return;
        filling.told_at = now;
        watchers = filling.watchers;
    }
    for (const auto let_go : watchers) let_go(now - kMostMappedCode + kMappedBetween);
}

}  // namespace

Code::Code(std::span<const std::uint8_t> bytes, Pages pages) : size_(bytes.size()) {
    keep_few_mapped();
    if (pages == Pages::own) {
        const auto slab = std::make_shared<CodeSlab>(bytes);
        first_ = {slab, slab->pages()};
        mapped_before_ = slab->mapped_before();
        return;
    }
    auto& filling = one_of_process<Filling>();
    const std::lock_guard lock(filling.mutex);
    std::shared_ptr<CodeSlab>& slab = filling.slab;
    try {
        if (!slab || !slab->has_room(bytes.size())) {
            if (slab) slab->seal();
            slab.reset();
            slab = std::make_shared<CodeSlab>(std::max(kSlabBytes, whole_pages(bytes.size())));
        }
        first_ = {slab, slab->append(bytes)};
        mapped_before_ = slab->mapped_before();
    } catch (const std::system_error&) {
        // No file here, or none that can be written (a sandbox, no descriptors or memory left):
        // anonymous pages need none.
        *this = Code(bytes, Pages::own);
    }
}

std::int64_t mapped_code_bytes() { return mapped_bytes; }

void watch_mapped_code(void (*let_go)(std::int64_t)) {
    auto& filling = one_of_process<Filling>();
    const std::lock_guard lock(filling.mutex);
    filling.watchers.push_back(let_go);
}

}  // namespace dlprim
