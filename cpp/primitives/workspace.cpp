#include "primitives/workspace.h"

#include <utility>

namespace dlprim {

WorkspacePool::Lease::Lease(WorkspacePool& pool, std::int64_t bytes) : pool_(pool), bytes_(bytes) {
    {
        const std::lock_guard lock(pool.mutex_);
        if (!pool.free_.empty()) {
            Piece piece = std::move(pool.free_.back());
            pool.free_.pop_back();
            if (piece.bytes >= bytes) {
                bytes_ = piece.bytes;
                piece_ = std::move(piece.buffer);
            }
        }
        pool.free_.reserve(pool.free_.size() + 8);
    }
    if (!piece_) {
        piece_ = std::make_unique<Buffer>((bytes + static_cast<std::int64_t>(sizeof(float)) - 1) /
                                          static_cast<std::int64_t>(sizeof(float)));
    }
}

WorkspacePool::Lease::~Lease() {
    const std::lock_guard lock(pool_.mutex_);
    if (pool_.free_.size() < pool_.free_.capacity()) {
        pool_.free_.push_back({bytes_, std::move(piece_)});
    }
}

}  // namespace dlprim
