// Random choices from a seed: the same seed draws the same case on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

namespace dlprim::testing {

class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}

    std::int64_t from(std::int64_t low, std::int64_t high) {
        return low +
               static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool once_in(std::int64_t times) { return from(1, times) == 1; }
    template <typename T, std::size_t count>
    T one_of(const std::array<T, count>& values) {
        return values[static_cast<std::size_t>(from(0, std::int64_t{count} - 1))];
    }

    // Extents: the edges of vectors and words more often than chance would have it.
    std::int64_t extent() {
        constexpr std::array<std::int64_t, 12> edges = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33};
        if (once_in(3)) return one_of(edges);
        return once_in(8) ? from(65, 200) : from(1, 64);
    }

    float normal() { return std::normal_distribution<float>{}(random_); }
    template <class Range>
    void shuffle(Range& range) {
        std::shuffle(range.begin(), range.end(), random_);
    }

private:
    std::mt19937_64 random_;
};

}  // namespace dlprim::testing
