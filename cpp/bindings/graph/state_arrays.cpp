#include "bindings/graph/state_arrays.h"

#include <algorithm>

namespace dlprim::bindings {

std::optional<std::pair<std::size_t, std::size_t>> StateArrays::shared_among_states(
    const std::vector<const void*>& inputs, const std::vector<ByteRange>& constants) const {
    placed_.clear();
    apart_.clear();
    for (const std::size_t i : states_) {
        if (bytes_[i] > 0) placed_.push_back({ByteRange::of(inputs[i], bytes_[i]), i});
    }
    std::sort(placed_.begin(), placed_.end(),
              [](const Placed& a, const Placed& b) { return a.range.begin < b.range.begin; });
    for (std::size_t i = 1; i < placed_.size(); ++i) {
        const Placed &one = placed_[i - 1], &other = placed_[i];
        if (other.range.begin < one.range.end) return std::pair(one.input, other.input);
    }
    for (const ByteRange& constant : constants) {
        for (const Placed& it : placed_) {
            if (it.range.shares_bytes_with(constant)) return std::pair(it.input, kConstant);
        }
    }
    for (const std::size_t i : states_) apart_.push_back(inputs[i]);
    return {};
}

std::optional<std::pair<std::size_t, std::size_t>> StateArrays::shared(
    const std::vector<const void*>& inputs, const std::vector<ByteRange>& constants) const {
    if (states_.empty()) return {};
    const bool is_known =
        apart_.size() == states_.size() &&
        std::equal(states_.begin(), states_.end(), apart_.begin(),
                   [&](std::size_t i, const void* data) { return inputs[i] == data; });
    if (!is_known) {
        if (const auto found = shared_among_states(inputs, constants)) return found;
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        if (is_state_[i]) continue;
        const ByteRange range = ByteRange::of(inputs[i], bytes_[i]);
        // The first that ends behind its begin.
        const auto state = std::upper_bound(
            placed_.begin(), placed_.end(), range.begin,
            [](const char* begin, const Placed& it) { return begin < it.range.end; });
        if (state != placed_.end() && state->range.shares_bytes_with(range)) {
            return std::pair(i, state->input);
        }
    }
    return {};
}

}  // namespace dlprim::bindings
