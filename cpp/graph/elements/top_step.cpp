#include "graph/elements/top_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "graph/elements/element.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

constexpr std::int64_t kGlance = 32;  // elements that are passed over at once
constexpr std::int64_t kTaskElements = 8 * 1024;
constexpr std::int64_t kFew = 16;               // that are kept in order all the time
constexpr std::int64_t kLongRow = 8 * kGlance;  // which is worth a look at all of it first

template <class T>
bool is_number(T value) {
    if constexpr (kIsReal<T>) return !std::isnan(static_cast<Computed<T>>(value));
    return true;
}

// An element as a number without a sign that is greater where the element comes first.
template <class T>
std::uint64_t rank_of(T value, bool largest) {
    using Word = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;
    constexpr Word kSign = Word{1} << (sizeof(Word) * 8 - 1);
    Word made = 0;
    if constexpr (kIsReal<T>) {
        const Computed<T> wide = value;
        const auto bits = std::bit_cast<Word>(wide == 0 ? Computed<T>{0} : wide);
        made = (bits & kSign) != 0 ? ~bits : bits | kSign;
        if (!is_number(value)) made = ~Word{0};
    } else {
        made = static_cast<Word>(value) ^ (std::is_signed_v<T> ? kSign : Word{0});
    }
    return largest ? made : static_cast<Word>(~made);
}

// An element that may be among the first: the place breaks ties.
struct WideCandidate {
    std::uint64_t rank = 0;
    std::int64_t at = 0;

    WideCandidate() = default;
    WideCandidate(std::uint64_t of, std::int64_t place) : rank(of), at(place) {}
    std::int64_t place() const { return at; }
    bool operator<(const WideCandidate& other) const {
        return rank != other.rank ? rank > other.rank : at < other.at;
    }
};

// The same of a rank of 32 bits and one of fewer than 2^32 elements.
struct NarrowCandidate {
    std::uint64_t word = 0;

    NarrowCandidate() = default;
    NarrowCandidate(std::uint64_t rank, std::int64_t place)
        : word(rank << 32 | (~static_cast<std::uint64_t>(place) & 0xFFFFFFFFU)) {}
    std::int64_t place() const { return static_cast<std::int64_t>(~word & 0xFFFFFFFFU); }
    bool operator<(const NarrowCandidate& other) const { return word > other.word; }
};

// What is no number comes before all numbers, or behind them.
template <class T>
bool comes_before(T value, T bar, bool largest) {
    return largest ? !(value <= bar) : value < bar;
}

// Whether none of some elements comes before `bar`, as fast as they are read.
template <class T>
bool are_behind(const T* from, T bar, bool largest) {
    int found = 0;
    if (largest) {
        for (std::int64_t i = 0; i < kGlance; ++i) found |= from[i] <= bar ? 0 : 1;
    } else {
        for (std::int64_t i = 0; i < kGlance; ++i) found |= from[i] < bar ? 1 : 0;
    }
    return found == 0;
}

// A number that at least `count` of a row come before, if one is found fast: every lane of a
// row's vectors has one that is its best. Without it many more elements are kept and lost again.
template <bool kLargest, class T>
bool find_bar(const T* row, std::int64_t extent, std::int64_t count, T& bar) {
    std::array<T, kGlance> lanes;
    std::copy_n(row, kGlance, lanes.begin());
    for (std::int64_t i = kGlance; i + kGlance <= extent; i += kGlance) {
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
            const T value = row[i + static_cast<std::int64_t>(lane)];
            const bool is_better = kLargest ? value > lanes[lane] : value < lanes[lane];
            lanes[lane] = is_better ? value : lanes[lane];
        }
    }
    if (!std::all_of(lanes.begin(), lanes.end(), [](T it) { return std::isfinite(it); })) {
        return false;
    }
    const auto last = lanes.begin() + (count - 1);
    std::nth_element(lanes.begin(), last, lanes.end(),
                     [&](T a, T b) { return kLargest ? a > b : a < b; });
    constexpr T kSign = kLargest ? -1 : 1, kTiny = std::numeric_limits<T>::min();
    const bool is_tiny = std::abs(*last) < kTiny;  // equal to 0 where a caller flushes such numbers
    bar =
        is_tiny ? kSign * kTiny : std::nextafter(*last, kSign * std::numeric_limits<T>::infinity());
    return std::isfinite(bar);
}

// One more among some in order, of which at most `most` stay; whether there are as many.
template <class Candidate>
bool insert(const Candidate& next, std::int64_t most, Candidate* best, std::int64_t& found) {
    if (found == most && !(next < best[most - 1])) return true;
    std::int64_t place = found == most ? most - 1 : found++;
    for (; place > 0 && next < best[place - 1]; --place) best[place] = best[place - 1];
    best[place] = next;
    return found == most;
}

// One more of which the better half stays as soon as there are twice as many as are kept, whose
// last is known then.
template <class Candidate>
bool collect(const Candidate& next, std::int64_t most, Candidate* best, std::int64_t& found) {
    best[found++] = next;
    if (found < 2 * most) return false;
    std::nth_element(best, best + most - 1, best + found);
    found = most;
    return true;
}

// The first `count` of a row in front of `best`; how many are there. Later equal ones never come
// first.
template <bool kInOrder, class Candidate, class T>
std::int64_t gather(const T* row, std::int64_t extent, std::int64_t count, bool largest,
                    Candidate* best) {
    std::int64_t found = 0;
    bool has_bar = false;  // the last that is kept, once there are enough, if it is a number
    T bar{};
    if constexpr (kInOrder && std::is_same_v<T, float>) {
        if (extent >= kLongRow) {
            has_bar = largest ? find_bar<true>(row, extent, count, bar)
                              : find_bar<false>(row, extent, count, bar);
        }
    }
    for (std::int64_t i = 0; i < extent;) {
        if constexpr (!kIsNarrow<T>) {
            if (has_bar && i + kGlance <= extent && are_behind(row + i, bar, largest)) {
                i += kGlance;
                continue;
            }
        }
        const std::int64_t end = std::min(i + kGlance, extent);
        for (; i < end; ++i) {
            if (has_bar && !comes_before(row[i], bar, largest)) continue;
            const Candidate next(rank_of(row[i], largest), i);
            const bool is_last_known =
                kInOrder ? insert(next, count, best, found) : collect(next, count, best, found);
            if (!is_last_known) continue;
            bar = row[best[count - 1].place()];
            has_bar = is_number(bar);
        }
    }
    return found;
}

// The first `count` of a row in front of `best`, in order.
template <class Candidate, class T>
void select(const T* row, std::int64_t extent, std::int64_t count, bool largest, Candidate* best) {
    if (count <= kFew) {
        gather<true>(row, extent, count, largest, best);
        return;
    }
    const std::int64_t found = gather<false>(row, extent, count, largest, best);
    if (found > count) std::nth_element(best, best + count - 1, best + found);
    std::sort(best, best + count);
}

struct Selection {
    TopValues values;
    std::int64_t rows = 1;     // in front of the axis
    std::int64_t extent = 1;   // along it
    std::int64_t columns = 1;  // behind it
    std::int64_t count = 1;
    bool largest = true;
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();

    template <class T>
    void run(const Addresses& at) const {
        const std::int64_t each =
            std::max<std::int64_t>(kTaskElements / std::max<std::int64_t>(extent, 1), 1);
        const Blocks tasks{rows * columns, each};
        parallel_for(tasks.count(), [&](std::int64_t task) {
            const auto bytes = [](std::int64_t elements, std::size_t of) {
                return aligned(elements * static_cast<std::int64_t>(of));
            };
            using Candidate = std::conditional_t<(sizeof(T) > 4), WideCandidate, NarrowCandidate>;
            const std::int64_t candidates = bytes(2 * count, sizeof(Candidate));
            const WorkspacePool::Lease own(*workspaces, candidates + bytes(extent, sizeof(T)));
            const Range range = tasks.at(task);
            for (std::int64_t line = range.begin; line < range.end; ++line) {
                run_line(at, line, reinterpret_cast<T*>(own.data() + candidates),
                         reinterpret_cast<Candidate*>(own.data()));
            }
        });
    }

    template <class T, class Candidate>
    void run_line(const Addresses& at, std::int64_t line, T* own, Candidate* best) const {
        const std::int64_t row = line / columns, column = line % columns;
        const T* src = static_cast<const T*>(at[values.src]) + row * extent * columns + column;
        if (columns != 1) {
            for (std::int64_t i = 0; i < extent; ++i) own[i] = src[i * columns];
            src = own;
        }
        select(src, extent, count, largest, best);
        T* const made = static_cast<T*>(at[values.values]) + row * count * columns + column;
        std::int64_t* const places =
            static_cast<std::int64_t*>(at[values.places]) + row * count * columns + column;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t place = best[i].place();
            made[i * columns] = src[place];
            places[i * columns] = place;
        }
    }
};

}  // namespace

NetworkStep top_step(const Network& network, const TopValues& values, const TopOf& of,
                     std::string label) {
    const NetworkTensor &src = network.tensor(values.src), &best = network.tensor(values.values),
                        &places = network.tensor(values.places);
    const auto axis = static_cast<std::size_t>(of.axis);
    bool fits = of.axis >= 0 && axis < src.shape.size() && best.shape.size() == src.shape.size();
    Selection it{.values = values, .largest = of.largest};
    for (std::size_t i = 0; fits && i < src.shape.size(); ++i) {
        const bool is_axis = i == axis;
        fits = is_axis ? best.shape[i] <= src.shape[i] : best.shape[i] == src.shape[i];
        if (i < axis) it.rows *= src.shape[i];
        if (i > axis) it.columns *= src.shape[i];
    }
    fits = fits && best.shape == places.shape && best.dtype == src.dtype &&
           places.dtype == "int64" && src.is_dense() && best.is_dense() && places.is_dense();
    if (!fits) {
        throw std::invalid_argument("the first of " + src.described() + " along axis " +
                                    std::to_string(of.axis) + " are " + best.described() + " at " +
                                    places.described() +
                                    ", expected no more than there are, and int64 places, all in "
                                    "C order");
    }
    it.extent = src.shape[axis];
    if (it.extent > std::numeric_limits<std::uint32_t>::max()) {
        throw std::invalid_argument("an axis of " + src.described() + " has " +
                                    std::to_string(it.extent) +
                                    " elements, expected fewer than 2^32");
    }
    it.count = best.shape[axis];
    NetworkStep step{.kind = "top_k",
                     .label = std::move(label),
                     .reads = {values.src},
                     .writes = {values.values, values.places}};
    with_element_type(src.dtype, [&](auto type) {
        using T = typename decltype(type)::Type;
        step.run = [it](const Addresses& at) { it.run<T>(at); };
    });
    return step;
}

}  // namespace dlprim
