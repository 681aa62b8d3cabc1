#include "primitives/tensor/workspace.h"

#include <pthread.h>

#include <utility>

namespace dlprim {
namespace {

// Calls in flight at once whose scratch is kept.
constexpr std::size_t kReserve = 8;

std::mutex current_mutex;
std::weak_ptr<WorkspacePool> current;  // what is shared now
std::shared_ptr<WorkspacePool> across_fork;
std::shared_ptr<WorkspacePool> held;  // guarded by current_mutex

}  // namespace

const int WorkspacePool::watching_forks_ = pthread_atfork(before_fork, after_fork, after_fork);

std::shared_ptr<WorkspacePool> WorkspacePool::shared() {
    const std::lock_guard lock(current_mutex);
    std::shared_ptr<WorkspacePool> pool = current.lock();
    if (!pool) current = pool = std::make_shared<WorkspacePool>();
    return pool;
}

// Not a static of a function, which a fork could leave half made.
WorkspacePool& WorkspacePool::lasting() {
    std::shared_ptr<WorkspacePool> pool = shared();
    const std::lock_guard lock(current_mutex);
    if (!held) held = std::move(pool);
    return *held;
}

// A child must not inherit a lock that another thread of its parent holds.
void WorkspacePool::before_fork() {
    current_mutex.lock();
    across_fork = current.lock();
    if (across_fork) across_fork->mutex_.lock();
}

void WorkspacePool::after_fork() {
    const std::shared_ptr<WorkspacePool> pool = std::move(across_fork);
    if (pool) pool->mutex_.unlock();
    current_mutex.unlock();
}

WorkspacePool::Lease::Lease(WorkspacePool& pool, std::int64_t bytes) : pool_(pool), bytes_(bytes) {
    if (bytes == 0) return;
    {
        const std::lock_guard lock(pool.mutex_);
        // The smallest that is large enough; where none is, the largest makes room for a new one.
        auto best = pool.free_.end();
        for (auto piece = pool.free_.begin(); piece != pool.free_.end(); ++piece) {
            const bool fits = piece->bytes >= bytes;
            if (best == pool.free_.end() ||
                (best->bytes >= bytes ? fits && piece->bytes < best->bytes
                                      : piece->bytes > best->bytes)) {
                best = piece;
            }
        }
        if (best != pool.free_.end()) {
            if (best->bytes >= bytes) {
                bytes_ = best->bytes;
                piece_ = std::move(best->buffer);
            }
            pool.free_.erase(best);
        }
        pool.free_.reserve(pool.free_.size() + kReserve);
    }
    if (!piece_) {
        piece_ = std::make_unique<Buffer>((bytes + kFloat - 1) / kFloat);
    }
}

WorkspacePool::Lease::~Lease() {
    if (!piece_) return;
    const std::lock_guard lock(pool_.mutex_);
    if (pool_.free_.size() < pool_.free_.capacity()) {
        pool_.free_.push_back({bytes_, std::move(piece_)});
    }
}

}  // namespace dlprim
