#include "jit/cache.h"

#include <pthread.h>

#include <array>
#include <cstdint>

namespace dlprim {
namespace {

constexpr std::uintptr_t kLine = 64;  // bytes of a cache

struct alignas(kLine) ShortLock {
    std::mutex mutex = {};
};

// Never destroyed, as nothing is to be done for that, and there before the first fork.
std::array<ShortLock, 16> short_locks;

void lock_all() {
    for (ShortLock& it : short_locks) it.mutex.lock();
}

void unlock_all() {
    for (ShortLock& it : short_locks) it.mutex.unlock();
}

[[maybe_unused]] const int watching_short_locks = pthread_atfork(lock_all, unlock_all, unlock_all);

}  // namespace

void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) {
    pthread_atfork(before, in_parent, in_child);
}

std::mutex& short_lock(const void* holder) {
    const std::uintptr_t line = reinterpret_cast<std::uintptr_t>(holder) / kLine;
    return short_locks[line % short_locks.size()].mutex;
}

}  // namespace dlprim
