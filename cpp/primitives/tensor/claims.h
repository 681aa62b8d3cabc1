// Which thread takes which tasks of a loop. Every thread has a range of its own, the same one in
// every loop of as many tasks, so that it finds in its core's caches what it left there; it goes
// through it from the front, and who is done takes from the far ends of the others. So a thread
// that has not come holds nobody up, and one that has lost its core does for the piece it has
// begun. A range is claimed in pieces, by one
// compare-and-swap each. Nothing here starts or waits for a thread, so that all orders of claims
// can be tried by one, and a plan be priced for threads that are not there.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "primitives/tensor/partition.h"

namespace dlprim {

// The way of each thread through its own tasks.
enum class TaskOrder : std::uint8_t { ascending, descending };

class Claims {
public:
    // Of a thread's own range: an eighth is little to wait for, and its claim costs nanoseconds.
    static constexpr std::int64_t kMostPieces = 8;

    // Not while another thread calls next(). Allocates only for more seats than ever before.
    void reset(std::int64_t tasks, int seats, TaskOrder order = TaskOrder::ascending);

    // Tasks that nobody has yet, for the thread on `seat`; an empty range where none are left.
    Range next(int seat) {
        const Range own = claimed(seat, true);
        for (int i = 1; own.size() == 0 && i < seats_; ++i) {
            const Range other = claimed((seat + i) % seats_, false);
            if (other.size() > 0) return other;
        }
        return own;
    }

    // Leaves nothing to claim.
    void clear();

    int seats() const { return seats_; }

private:
    // Pieces of a seat that nobody has, as (begin << 32 | end).
    struct alignas(kCacheLineBytes) Pieces {
        std::atomic<std::uint64_t> left{0};
    };

    static constexpr std::uint64_t packed(std::uint64_t begin, std::uint64_t end) {
        return begin << 32 | end;
    }

    // The first piece of a seat or, for others than its own thread, the last one.
    Range claimed(int seat, bool own) {
        std::atomic<std::uint64_t>& left = pieces_[static_cast<std::size_t>(seat)].left;
        const bool front = own == (order_ == TaskOrder::ascending);
        std::uint64_t seen = left.load(std::memory_order_relaxed);
        for (;;) {
            const std::uint64_t begin = seen >> 32, end = seen & 0xffffffff;
            if (begin >= end) return {};
            const std::uint64_t rest = front ? packed(begin + 1, end) : packed(begin, end - 1);
            if (left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) {
                return piece(seat, static_cast<std::int64_t>(front ? begin : end - 1));
            }
        }
    }

    static std::int64_t pieces_of(const Range& tasks) {
        return std::min(tasks.size(), kMostPieces);
    }

    Range piece(int seat, std::int64_t number) const {
        const Range own = chunk(tasks_, seats_, seat);
        const Range within = chunk(own.size(), pieces_of(own), number);
        return {own.begin + within.begin, own.begin + within.end};
    }

    std::int64_t tasks_ = 0;
    int seats_ = 0;
    int room_ = 0;
    TaskOrder order_ = TaskOrder::ascending;
    std::unique_ptr<Pieces[]> pieces_;
};

inline void Claims::reset(std::int64_t tasks, int seats, TaskOrder order) {
    if (seats > room_) {
        pieces_ = std::make_unique<Pieces[]>(static_cast<std::size_t>(seats));
        room_ = seats;
    }
    tasks_ = tasks;
    seats_ = seats;
    order_ = order;
    for (int seat = 0; seat < seats; ++seat) {
        const std::int64_t own = pieces_of(chunk(tasks, seats, seat));
        pieces_[static_cast<std::size_t>(seat)].left.store(
            packed(0, static_cast<std::uint64_t>(own)), std::memory_order_relaxed);
    }
}

inline void Claims::clear() {
    for (int seat = 0; seat < seats_; ++seat) {
        pieces_[static_cast<std::size_t>(seat)].left.store(0, std::memory_order_relaxed);
    }
}

}  // namespace dlprim
