// Arrays that a run writes while it reads others: states, which must be apart from each other and
// from all that is read. Arrays of states are mostly the same in every run, so that what was found
// apart is not looked at again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dlprim::bindings {

struct ByteRange {
    const char* begin = nullptr;
    const char* end = nullptr;

    static ByteRange of(const void* data, std::int64_t bytes) {
        const auto* const first = static_cast<const char*>(data);
        return {first, first + bytes};
    }
    bool shares_bytes_with(const ByteRange& other) const {
        return begin < end && other.begin < other.end && begin < other.end && other.begin < end;
    }
};

class StateArrays {
public:
    // Of the inputs of a network, in their order.
    void add_input(std::int64_t bytes) {
        bytes_.push_back(bytes);
        is_state_.push_back(false);
    }
    void make_state(std::size_t input) {
        is_state_.at(input) = true;
        states_.push_back(input);
    }

    const std::vector<std::size_t>& states() const { return states_; }
    bool is_state(std::size_t input) const { return is_state_[input]; }

    // A number that is none of an input: a constant.
    static constexpr std::size_t kConstant = static_cast<std::size_t>(-1);

    // Two arrays that share memory, one of them a state, of a run with these first elements. One
    // call at a time, by the GIL.
    std::optional<std::pair<std::size_t, std::size_t>> shared(
        const std::vector<const void*>& inputs, const std::vector<ByteRange>& constants) const;

private:
    struct Placed {
        ByteRange range;
        std::size_t input;
    };

    std::optional<std::pair<std::size_t, std::size_t>> shared_among_states(
        const std::vector<const void*>& inputs, const std::vector<ByteRange>& constants) const;

    std::vector<std::int64_t> bytes_ = {};
    std::vector<bool> is_state_ = {};
    std::vector<std::size_t> states_ = {};
    mutable std::vector<const void*> apart_ = {};  // states that were found apart
    mutable std::vector<Placed> placed_ = {};      // these, from the lowest address
};

}  // namespace dlprim::bindings
