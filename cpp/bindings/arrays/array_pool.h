// Memory of results that is used again. A fresh array of megabytes costs a page fault for every
// four kilobytes, as much time as a fifth of a small layer's arithmetic; results of one primitive
// have few sizes, and a training loop drops those of one iteration before or soon after it asks for
// the next. So memory comes back when its last array dies, and waits here for an equal request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>

#include "primitives/tensor/buffer.h"

namespace dlprim::bindings {

class ArrayPool : public std::enable_shared_from_this<ArrayPool> {
public:
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
    // Equal pieces that wait at once.
    static constexpr std::size_t kMost = 4;

    struct Piece {
        std::shared_ptr<ArrayPool> pool;
        std::unique_ptr<Buffer> buffer;
        std::int64_t bytes = 0;
    };

    std::unique_ptr<Buffer> take(std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        std::vector<std::unique_ptr<Buffer>>& waiting = free_[bytes];
        waiting.reserve(kMost);
        if (waiting.empty()) return std::make_unique<Buffer>((bytes + 3) / 4);
        std::unique_ptr<Buffer> buffer = std::move(waiting.back());
        waiting.pop_back();
        return buffer;
    }

    void give(std::unique_ptr<Buffer> buffer, std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        std::vector<std::unique_ptr<Buffer>>& waiting = free_[bytes];
        if (waiting.size() < kMost) waiting.push_back(std::move(buffer));
    }

    std::mutex mutex_;
    std::map<std::int64_t, std::vector<std::unique_ptr<Buffer>>> free_;
};

}  // namespace dlprim::bindings
