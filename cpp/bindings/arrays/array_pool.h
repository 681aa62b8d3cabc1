// Memory of results that is used again. A fresh array of megabytes costs a page fault for every
// four kilobytes, as much time as a fifth of a small layer's arithmetic, and in huge pages many
// times that while the system looks for some; whoever computes in a loop drops the results of one
// iteration before or soon after it asks for those of the next. So memory comes back when its last
// array dies, and waits here for an equal request. A pool may be bounded: then what has waited
// longest makes room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>

#include "primitives/tensor/buffer.h"

namespace dlprim::bindings {

class ArrayPool : public std::enable_shared_from_this<ArrayPool> {
public:
    // With at most so many bytes waiting.
    explicit ArrayPool(std::int64_t most = kUnbounded) : most_(most) {
        waiting_.reserve(kMostPieces);
    }

    // The one of all results that have no other, for as long as the process lives. Smaller ones the
    // C library keeps itself.
    static constexpr std::int64_t kWorthPooling = std::int64_t{1} << 18;
    static ArrayPool& results() {
        constexpr std::int64_t kMost = std::int64_t{64} << 20;
        static auto* const pool =
            new std::shared_ptr<ArrayPool>(std::make_shared<ArrayPool>(kMost));
        return **pool;
    }

    // A vector of uninitialised bytes on a cache line; the pool outlives it.
    pybind11::array_t<std::uint8_t> empty(std::int64_t bytes) {
        auto piece = std::make_unique<Piece>(Piece{shared_from_this(), take(bytes), bytes});
        auto* const data = reinterpret_cast<std::uint8_t*>(piece->buffer->data());
        const pybind11::capsule owner(piece.release(), [](void* it) {
            const std::unique_ptr<Piece> dropped(static_cast<Piece*>(it));
            dropped->pool->give(std::move(dropped->buffer), dropped->bytes);
        });
        return pybind11::array_t<std::uint8_t>(bytes, data, owner);
    }

private:
    static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
    static constexpr std::size_t kMostPieces = 64;
    // Equal pieces that wait in a pool without a bound.
    static constexpr std::int64_t kMostEqual = 4;

    struct Piece {
        std::shared_ptr<ArrayPool> pool;
        std::unique_ptr<Buffer> buffer;
        std::int64_t bytes = 0;
    };

    struct Waiting {
        std::int64_t bytes = 0;
        std::unique_ptr<Buffer> buffer;
    };

    std::unique_ptr<Buffer> take(std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        const auto last = std::find_if(waiting_.rbegin(), waiting_.rend(),
                                       [=](const Waiting& it) { return it.bytes == bytes; });
        if (last == waiting_.rend()) return std::make_unique<Buffer>((bytes + 3) / 4);
        std::unique_ptr<Buffer> buffer = std::move(last->buffer);
        waiting_.erase(std::next(last).base());
        bytes_ -= bytes;
        return buffer;
    }

    bool is_bounded() const { return most_ != kUnbounded; }

    // Allocates nothing.
    void give(std::unique_ptr<Buffer> buffer, std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        const std::int64_t equal = std::count_if(
            waiting_.begin(), waiting_.end(), [=](const Waiting& it) { return it.bytes == bytes; });
        if (bytes > most_ || (!is_bounded() && equal == kMostEqual)) return;
        while (bytes_ > most_ - bytes || waiting_.size() == kMostPieces) {
            bytes_ -= waiting_.front().bytes;
            waiting_.erase(waiting_.begin());
        }
        waiting_.push_back({bytes, std::move(buffer)});
        bytes_ += bytes;
    }

    std::mutex mutex_;
    std::vector<Waiting> waiting_ = {};  // the oldest first
    std::int64_t bytes_ = 0;             // of these
    std::int64_t most_;
};

}  // namespace dlprim::bindings
