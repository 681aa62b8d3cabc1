// Memory of results that is used again. A fresh array of megabytes costs a page fault for every
// four kilobytes, as much time as a fifth of a small layer's arithmetic, and in huge pages many
// times that while the system looks for some; whoever computes in a loop drops the results of one
// iteration before or soon after it asks for those of the next. So memory comes back when its last
// array dies, and waits here for a request of about as many bytes. What has waited longest makes
// room where more would wait than the pool may keep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>

#include "primitives/tensor/buffer.h"

namespace dlprim::bindings {

class ArrayPool : public std::enable_shared_from_this<ArrayPool> {
public:
    // With at most so many times the bytes waiting that arrays have held at a time, and never more
    // than `limit`.
    explicit ArrayPool(std::int64_t times = 1,
                       std::int64_t limit = std::numeric_limits<std::int64_t>::max())
        : times_(times), limit_(limit) {
        waiting_.reserve(kMostPieces);
    }

    // The one of all results that have no other, for as long as the process lives. Smaller ones the
    // C library keeps itself.
    static constexpr std::int64_t kWorthPooling = std::int64_t{1} << 18;
    static ArrayPool& results() {
        constexpr std::int64_t kTimes = 4, kLimit = std::int64_t{64} << 20;
        static auto* const pool =
            new std::shared_ptr<ArrayPool>(std::make_shared<ArrayPool>(kTimes, kLimit));
        return **pool;
    }

    // The one of all recurrent layers at a time: what training saves of their steps takes many
    // times what they return.
    static std::shared_ptr<ArrayPool> recurrent() {
        static std::weak_ptr<ArrayPool> shared;  // guarded by the GIL
        std::shared_ptr<ArrayPool> pool = shared.lock();
        if (!pool) shared = pool = std::make_shared<ArrayPool>();
        return pool;
    }

    // A vector of uninitialised bytes on a cache line; the pool outlives it.
    pybind11::array_t<std::uint8_t> empty(std::int64_t bytes) {
        auto piece = std::make_unique<Piece>(Piece{shared_from_this(), take(bytes)});
        auto* const data = reinterpret_cast<std::uint8_t*>(piece->memory.buffer->data());
        const pybind11::capsule owner(piece.release(), [](void* it) {
            const std::unique_ptr<Piece> dropped(static_cast<Piece*>(it));
            dropped->pool->give(std::move(dropped->memory));
        });
        return pybind11::array_t<std::uint8_t>(bytes, data, owner);
    }

private:
    static constexpr std::size_t kMostPieces = 256;

    struct Memory {
        std::int64_t bytes = 0;
        std::unique_ptr<Buffer> buffer = {};
    };

    struct Piece {
        std::shared_ptr<ArrayPool> pool;
        Memory memory;
    };

    // The smallest piece that is large enough, of those that leave no more than a fifth unused.
    Memory take(std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        auto best = waiting_.end();
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
            const bool fits = it->bytes >= bytes && it->bytes - bytes <= bytes / 4;
            if (fits && (best == waiting_.end() || it->bytes <= best->bytes)) best = it;
        }
        Memory taken{.bytes = bytes};
        if (best == waiting_.end()) {
            taken.buffer = std::make_unique<Buffer>((bytes + 3) / 4);
        } else {
            taken = std::move(*best);
            waiting_.erase(best);
            bytes_ -= taken.bytes;
        }
        held_ += taken.bytes;
        most_ = std::max(most_, std::min(times_ * held_, limit_));
        return taken;
    }

    // Allocates nothing.
    void give(Memory memory) {
        const std::lock_guard lock(mutex_);
        held_ -= memory.bytes;
        if (memory.bytes > most_) return;
        while (bytes_ > most_ - memory.bytes || waiting_.size() == kMostPieces) {
            bytes_ -= waiting_.front().bytes;
            waiting_.erase(waiting_.begin());
        }
        bytes_ += memory.bytes;
        waiting_.push_back(std::move(memory));
    }

    std::mutex mutex_;
    std::vector<Memory> waiting_ = {};  // the oldest first
    std::int64_t bytes_ = 0;            // of these
    std::int64_t held_ = 0;             // by arrays
    std::int64_t times_;
    std::int64_t limit_;
    std::int64_t most_ = 0;
};

}  // namespace dlprim::bindings
