// Scratch that is kept between calls: a call in flight owns one piece of memory, the next call
// reuses it, and pieces live as long as the pool. So a hot call takes no scratch from the system,
// and one primitive may run in several threads. Primitives share a pool: of the layers of a network
// one runs at a time, and the scratch of the layer before is still in the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "jit/dtype.h"
#include "primitives/tensor/buffer.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

class WorkspacePool {
public:
    // One pool for all that hold it at a time; its memory goes with the last of them.
    static std::shared_ptr<WorkspacePool> shared();
    // The same, held from the first call on as long as the process lives: for those of whom nothing
    // lives between calls to keep what one leaves for the next.
    static WorkspacePool& lasting();

    class Lease {
    public:
        Lease(WorkspacePool& pool, std::int64_t bytes);
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease();

        // Aligned to the cache line; as many bytes as asked for.
        // Null for none.
        char* data() const { return piece_ ? reinterpret_cast<char*>(piece_->data()) : nullptr; }

    private:
        friend class WorkspacePool;
        WorkspacePool& pool_;
        std::int64_t bytes_;
        std::unique_ptr<Buffer> piece_;
    };

private:
    struct Piece {
        std::int64_t bytes;
        std::unique_ptr<Buffer> buffer;
    };

    static void before_fork();
    static void after_fork();

    static const int watching_forks_;
    std::mutex mutex_;
    std::vector<Piece> free_;
};

// Deals one piece of scratch out to its uses, each on a cache line of its own. With a null base it
// only counts.
class ScratchCutter {
public:
    explicit ScratchCutter(char* base) : base_(base) {}

    char* take(std::int64_t bytes) {
        char* const piece = base_ == nullptr ? nullptr : base_ + used_;
        used_ += aligned(bytes);
        return piece;
    }
    float* take_floats(std::int64_t count) {
        return reinterpret_cast<float*>(take(count * size_of(DType::f32)));
    }

    std::int64_t bytes() const { return used_; }

private:
    char* base_;
    std::int64_t used_ = 0;
};

}  // namespace dlprim
