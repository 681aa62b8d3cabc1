#include "graph/run_events.h"

#include <stdexcept>
#include <string>

namespace dlprim {

void RunEvents::begin(const std::vector<int>& uses) {
    const std::lock_guard lock(mutex_);
    if (has_begun_ || has_ended_) {
        throw std::invalid_argument("events are those of an earlier run, expected new ones");
    }
    left_ = std::vector<std::atomic<int>>(uses.size());
    for (std::size_t i = 0; i < uses.size(); ++i) left_[i] = uses[i];
    has_begun_ = true;
    changed_.notify_all();
}

// Either this sees who waits, or who waits sees that nothing is left: all of it is in one order.
void RunEvents::used(std::size_t array) {
    if (--left_[array] > 0 || waiting_ == 0) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
}

void RunEvents::end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
}

bool RunEvents::is_final(std::size_t array) const { return has_begun_ && left_[array] <= 0; }

RunEvents::Outcome RunEvents::wait(std::size_t array, std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    const auto is_over = [&] {
        return has_ended_ || (has_begun_ && (array >= left_.size() || is_final(array)));
    };
    changed_.wait_for(lock, limit, is_over);
    --waiting_;
    if (has_begun_ && array >= left_.size()) {
        throw std::invalid_argument("array is " + std::to_string(array) + ", but the run has " +
                                    std::to_string(left_.size()));
    }
    if (is_final(array)) return Outcome::final;
    return has_ended_ ? Outcome::abandoned : Outcome::late;
}

}  // namespace dlprim
