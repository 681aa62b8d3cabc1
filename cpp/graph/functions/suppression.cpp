#include "graph/functions/suppression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <emmintrin.h>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Scores and places as one number, which is the larger the earlier a box comes: by score, then by
// place. Numbers compare without branches that would have to be foretold.
using Rank = std::uint64_t;

Rank rank_of(float score, std::int64_t place) {
    const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // there is one zero
    const std::uint32_t above = bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
    return Rank{above} << 32 | static_cast<std::uint32_t>(~place);
}

std::int64_t place_of(Rank rank) { return static_cast<std::uint32_t>(~rank); }

// A rank that at least `few` of these reach, and not many more where scores are spread: the floor
// of a slice out of equal ones.
Rank floor_of_best(const std::vector<Rank>& ranks, std::size_t few) {
    const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
    constexpr int kBits = 10;
    constexpr std::size_t kSlices = 1 << kBits;
    const Rank first = *least;
    const int shift = std::max(0, static_cast<int>(std::bit_width(*most - first)) - kBits);
    std::array<std::uint32_t, kSlices> counts{};
    for (const Rank it : ranks) ++counts[(it - first) >> shift];
    std::size_t slice = kSlices;
    for (std::size_t reached = 0; reached < few;) reached += counts[--slice];
    return first + (Rank{slice} << shift);
}

// Boxes side by side, each number in a list of its own.
struct Boxes {
    std::vector<double> top = {}, left = {}, bottom = {}, right = {}, area = {};

    void add(const std::array<double, 4>& corners) {
        top.push_back(corners[0]);
        left.push_back(corners[1]);
        bottom.push_back(corners[2]);
        right.push_back(corners[3]);
        area.push_back((corners[2] - corners[0]) * (corners[3] - corners[1]));
    }

    void drop() {
        for (std::vector<double>* const it : {&top, &left, &bottom, &right, &area}) it->pop_back();
    }
};

std::array<double, 4> corners_of(const float* box, bool is_centered) {
    const std::array<double, 4> it{box[0], box[1], box[2], box[3]};
    if (is_centered) {
        return {it[1] - it[3] / 2, it[0] - it[2] / 2, it[1] + it[3] / 2, it[0] + it[2] / 2};
    }
    return {std::min(it[0], it[2]), std::min(it[1], it[3]), std::max(it[0], it[2]),
            std::max(it[1], it[3])};
}

// Of two boxes at a time, from the first of the lists on.
struct Pair {
    __m128d top, left, bottom, right, area;

    static Pair of(const Boxes& boxes, std::size_t i) {
        return {_mm_loadu_pd(&boxes.top[i]), _mm_loadu_pd(&boxes.left[i]),
                _mm_loadu_pd(&boxes.bottom[i]), _mm_loadu_pd(&boxes.right[i]),
                _mm_loadu_pd(&boxes.area[i])};
    }

    static Pair both(const Boxes& boxes, std::size_t i) {
        return {_mm_set1_pd(boxes.top[i]), _mm_set1_pd(boxes.left[i]), _mm_set1_pd(boxes.bottom[i]),
                _mm_set1_pd(boxes.right[i]), _mm_set1_pd(boxes.area[i])};
    }
};

// A bit for each that shares too much of its area with the other.
int clashes(const Pair& one, const Pair& other, double threshold) {
    const __m128d zero = _mm_setzero_pd();
    const __m128d height =
        _mm_sub_pd(_mm_min_pd(one.bottom, other.bottom), _mm_max_pd(one.top, other.top));
    const __m128d width =
        _mm_sub_pd(_mm_min_pd(one.right, other.right), _mm_max_pd(one.left, other.left));
    const __m128d shared = _mm_mul_pd(_mm_max_pd(height, zero), _mm_max_pd(width, zero));
    const __m128d rest = _mm_max_pd(_mm_sub_pd(_mm_add_pd(one.area, other.area), shared), zero);
    return _mm_movemask_pd(_mm_cmpgt_pd(shared, _mm_mul_pd(_mm_set1_pd(threshold), rest)));
}

// Whether the last of the boxes shares too much with any in front of it.
bool is_last_hidden(const Boxes& boxes, double threshold) {
    const std::size_t last = boxes.top.size() - 1;
    const Pair own = Pair::both(boxes, last);
    std::size_t i = 0;
    for (; i + 4 <= last; i += 4) {
        const int found = clashes(own, Pair::of(boxes, i), threshold) |
                          clashes(own, Pair::of(boxes, i + 2), threshold);
        if (found != 0) return true;
    }
    for (; i < last; ++i) {
        if (clashes(own, Pair::both(boxes, i), threshold) != 0) return true;
    }
    return false;
}

class KeptOfClass {
public:
    KeptOfClass(const float* boxes, const BoxScores& given, const Suppression& limits)
        : boxes_(boxes), is_centered_(given.is_centered), limits_(limits) {}

    std::vector<std::int64_t> of(const float* scores, std::int64_t count) {
        std::vector<Rank> waiting(static_cast<std::size_t>(count));
        std::size_t size = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            waiting[size] = rank_of(scores[i], i);
            size += static_cast<double>(scores[i]) > limits_.least ? 1 : 0;
        }
        waiting.resize(size);
        // Few of many are looked at: the best of them come first.
        const auto few =
            static_cast<std::size_t>(4 * std::clamp<std::int64_t>(limits_.most, 0, count) + 64);
        if (few >= size) {
            take(waiting);
            return kept_;
        }
        const Rank floor = floor_of_best(waiting, few);
        take(those(waiting, [&](Rank it) { return it >= floor; }));
        if (!is_full()) take(those(waiting, [&](Rank it) { return it < floor; }));
        return kept_;
    }

private:
    bool is_full() const { return static_cast<std::int64_t>(kept_.size()) >= limits_.most; }

    template <typename Wanted>
    static std::vector<Rank> those(const std::vector<Rank>& ranks, const Wanted& is_wanted) {
        std::vector<Rank> found(ranks.size());
        std::size_t size = 0;
        for (const Rank it : ranks) {
            found[size] = it;
            size += is_wanted(it) ? 1 : 0;
        }
        found.resize(size);
        return found;
    }

    void take(std::vector<Rank> ranks) {
        std::make_heap(ranks.begin(), ranks.end());
        while (!ranks.empty() && !is_full()) {
            std::pop_heap(ranks.begin(), ranks.end());
            const std::int64_t place = place_of(ranks.back());
            ranks.pop_back();
            found_.add(corners_of(boxes_ + 4 * place, is_centered_));
            if (is_last_hidden(found_, limits_.threshold)) {
                found_.drop();
            } else {
                kept_.push_back(place);
            }
        }
    }

    const float* boxes_;
    bool is_centered_;
    Suppression limits_;
    Boxes found_;
    std::vector<std::int64_t> kept_;
};

}  // namespace

std::vector<std::int64_t> kept_boxes(const BoxScores& given, const Suppression& limits) {
    const std::int64_t lists = given.samples * given.classes;
    std::vector<std::vector<std::int64_t>> kept(static_cast<std::size_t>(lists));
    const auto elements = static_cast<double>(lists * given.count);
    const WorkOf work(16 * elements, 4 * elements);
    parallel_for(lists, [&](std::int64_t i) {
        KeptOfClass made(given.boxes + i / given.classes * given.count * 4, given, limits);
        kept[static_cast<std::size_t>(i)] = made.of(given.scores + i * given.count, given.count);
    });
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < lists; ++i) {
        for (const std::int64_t place : kept[static_cast<std::size_t>(i)]) {
            rows.insert(rows.end(), {i / given.classes, i % given.classes, place});
        }
    }
    return rows;
}

}  // namespace dlprim
