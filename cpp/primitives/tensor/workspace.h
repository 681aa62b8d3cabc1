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

#include "primitives/tensor/buffer.h"

namespace dlprim {

class WorkspacePool {
public:
    // One pool for all that hold it at a time; its memory goes with the last of them.
    static std::shared_ptr<WorkspacePool> shared();

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

}  // namespace dlprim
