// Scratch that is kept between calls: a call in flight owns one piece of memory, the next call
// reuses it, and pieces live as long as the pool, which a primitive has or several share. So a hot
// call takes no scratch from the system, and one primitive may run in several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "primitives/buffer.h"

namespace dlprim {

class WorkspacePool {
public:
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

    std::mutex mutex_;
    std::vector<Piece> free_;
};

// The pool of all who hold it: layers that run one after the other find their scratch in the
// caches, where the last one left it, and take the room of the largest. Gone with its last holder.
std::shared_ptr<WorkspacePool> shared_workspaces();

}  // namespace dlprim
