#include "graph/elements/fold_step.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/elements/element.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaskElements = 16 * 1024;
constexpr std::int64_t kColumns = 256;  // that are gone through side by side

// What elements are added up in: integers in 64 bits, which sums may leave, floats in double.
template <class T>
using Wide =
    std::conditional_t<kIsReal<T>, double,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

template <class Sum, class T>
Sum as(T value) {
    return static_cast<Sum>(static_cast<Computed<T>>(value));
}

// The first of two where they are equal; what is no number is greater and less than all numbers.
template <class T>
constexpr T larger(T a, T b) {
    return b > a || (b != b && a == a) ? b : a;
}

template <class T>
constexpr T smaller(T a, T b) {
    return b < a || (b != b && a == a) ? b : a;
}

template <class T, class Sum>
T narrowed(Sum value) {
    if constexpr (kIsNarrow<T>) {
        return T(odd_float(value));
    } else {
        return static_cast<T>(value);
    }
}

template <class T>
Wide<T> added(Wide<T> a, Wide<T> b) {
    if constexpr (kIsReal<T>) return a + b;
    return static_cast<Wide<T>>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

template <class T>
Wide<T> multiplied(Wide<T> a, Wide<T> b) {
    if constexpr (kIsReal<T>) return a * b;
    return static_cast<Wide<T>>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// Before, along and behind the axis.
struct Folding {
    FoldedValues values;
    AxisFold fold;
    std::int64_t rows = 0;
    std::int64_t extent = 0;
    std::int64_t columns = 0;

    // Calls body(element of src, element of dst, columns) for parts that share nothing; a place in
    // dst is row * step + column.
    template <class Body>
    void share(std::int64_t step, const Body& body) const {
        const Blocks parts{columns, kColumns};
        const std::int64_t each = extent * std::min(columns, kColumns);
        const Blocks tasks{
            rows * parts.count(),
            std::max<std::int64_t>(kTaskElements / std::max<std::int64_t>(each, 1), 1)};
        parallel_for(tasks.count(), [&](std::int64_t task) {
            const Range range = tasks.at(task);
            for (std::int64_t i = range.begin; i < range.end; ++i) {
                const std::int64_t row = i / parts.count();
                const Range part = parts.at(i % parts.count());
                body(row * extent * columns + part.begin, row * step + part.begin, part.size());
            }
        });
    }

    // One value for each column: of one column several sums side by side, in a fixed order.
    template <class T, class Sum, class Join>
    void reduce(const Addresses& at, Sum first, const Join& join) const {
        const T* const src = at[values.src];
        T* const dst = at[values.dst];
        const bool is_mean = fold.function == "mean";
        const auto finished = [&](Sum value) {
            if (!is_mean) return narrowed<T>(value);
            if constexpr (!kIsReal<T>) {
                return narrowed<T>(extent == 0 ? Sum{0} : value / static_cast<Sum>(extent));
            }
            return narrowed<T>(value / static_cast<Sum>(extent));
        };
        share(columns, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
            if (columns == 1) {
                dst[to] = finished(reduced_row(src + from, first, join));
                return;
            }
            std::array<Sum, kColumns> made;
            std::fill_n(made.begin(), count, first);
            for (std::int64_t k = 0; k < extent; ++k) {
                const T* const line = src + from + k * columns;
                for (std::int64_t i = 0; i < count; ++i) {
                    auto& it = made[static_cast<std::size_t>(i)];
                    it = join(it, as<Sum>(line[i]));
                }
            }
            for (std::int64_t i = 0; i < count; ++i) {
                dst[to + i] = finished(made[static_cast<std::size_t>(i)]);
            }
        });
    }

    template <class T, class Sum, class Join>
    Sum reduced_row(const T* row, Sum first, const Join& join) const {
        constexpr std::int64_t kSideBySide = 16;
        std::array<Sum, kSideBySide> made;
        made.fill(first);
        std::int64_t k = 0;
        for (; k + kSideBySide <= extent; k += kSideBySide) {
            for (std::int64_t i = 0; i < kSideBySide; ++i) {
                auto& it = made[static_cast<std::size_t>(i)];
                it = join(it, as<Sum>(row[k + i]));
            }
        }
        for (; k < extent; ++k) made[0] = join(made[0], as<Sum>(row[k]));
        for (std::size_t i = 1; i < made.size(); ++i) made[0] = join(made[0], made[i]);
        return made[0];
    }

    template <class T, class Sum, class Join>
    void accumulate(const Addresses& at, Sum first, const Join& join) const {
        const T* const src = at[values.src];
        T* const dst = at[values.dst];
        share(extent * columns, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
            std::array<Sum, kColumns> made;
            std::fill_n(made.begin(), count, first);
            const std::int64_t step = fold.reverse ? -columns : columns;
            const std::int64_t begin = fold.reverse ? (extent - 1) * columns : 0;
            const T* line = src + from + begin;
            T* result = dst + to + begin;
            if (count == 1) return accumulate_one(line, result, step, made[0], join);
            for (std::int64_t k = 0; k < extent; ++k, line += step, result += step) {
                accumulate_line(line, result, count, made.data(), join);
            }
        });
    }

    template <class T, class Sum, class Join>
    void accumulate_line(const T* line, T* result, std::int64_t count, Sum* made,
                         const Join& join) const {
        if (fold.exclusive) {
            for (std::int64_t i = 0; i < count; ++i) {
                result[i] = narrowed<T>(made[i]);
                made[i] = join(made[i], as<Sum>(line[i]));
            }
            return;
        }
        for (std::int64_t i = 0; i < count; ++i) {
            made[i] = join(made[i], as<Sum>(line[i]));
            result[i] = narrowed<T>(made[i]);
        }
    }

    template <class T, class Sum, class Join>
    void accumulate_one(const T* line, T* result, std::int64_t step, Sum made,
                        const Join& join) const {
        if (fold.exclusive) {
            for (std::int64_t k = 0; k < extent; ++k) {
                result[k * step] = narrowed<T>(made);
                made = join(made, as<Sum>(line[k * step]));
            }
            return;
        }
        for (std::int64_t k = 0; k < extent; ++k) {
            made = join(made, as<Sum>(line[k * step]));
            result[k * step] = narrowed<T>(made);
        }
    }
};

template <class T>
Computed<T> end_of(bool is_least) {
    using Limits = std::numeric_limits<Computed<T>>;
    if constexpr (kIsReal<T>) return is_least ? -Limits::infinity() : Limits::infinity();
    return is_least ? Limits::min() : Limits::max();
}

using Run = std::function<void(const Addresses&)>;

template <class T>
Run run_of(const Folding& it) {
    const std::string& name = it.fold.function;
    const auto running = name.rfind("running_", 0) == 0;
    using Sum = Wide<T>;
    using Value = Computed<T>;
    const auto folding = [&](Sum first, auto join) -> Run {
        if (running) return [=](const Addresses& at) { it.accumulate<T>(at, first, join); };
        return [=](const Addresses& at) { it.reduce<T>(at, first, join); };
    };
    if (name == "sum" || name == "mean" || name == "running_sum") {
        return folding(0, [](Sum a, Sum b) { return added<T>(a, b); });
    }
    if (name == "product" || name == "running_product") {
        return folding(1, [](Sum a, Sum b) { return multiplied<T>(a, b); });
    }
    const auto choosing = [&](bool is_largest, auto choose) -> Run {
        const Value end = end_of<T>(is_largest);
        return [=](const Addresses& at) { it.reduce<T>(at, end, choose); };
    };
    if (name == "max") return choosing(true, [](Value a, Value b) { return larger(a, b); });
    if (name == "min") return choosing(false, [](Value a, Value b) { return smaller(a, b); });
    throw std::invalid_argument("elements are folded by '" + name +
                                "', expected sum, mean, product, max, min, running_sum or "
                                "running_product");
}

}  // namespace

NetworkStep fold_step(const Network& network, const FoldedValues& values, const AxisFold& fold,
                      std::string label) {
    const NetworkTensor &src = network.tensor(values.src), &dst = network.tensor(values.dst);
    const bool runs = fold.function.rfind("running_", 0) == 0;
    const bool fits = src.shape.size() == 3 && src.is_dense() && dst.is_dense() &&
                      dst.shape == (runs ? src.shape : std::vector{src.shape[0], src.shape[2]}) &&
                      dst.dtype == src.dtype;
    if (!fits) {
        throw std::invalid_argument("the " + fold.function + " of " + src.described() + " is " +
                                    dst.described() +
                                    ", expected three axes, the second of which it is along, and "
                                    "a result without it, all in C order");
    }
    const Folding it{.values = values,
                     .fold = fold,
                     .rows = src.shape[0],
                     .extent = src.shape[1],
                     .columns = src.shape[2]};
    NetworkStep step{.kind = fold.function,
                     .label = std::move(label),
                     .reads = {values.src},
                     .writes = {values.dst}};
    step.run = with_element_type(
        src.dtype, [&](auto type) -> Run { return run_of<typename decltype(type)::Type>(it); });
    return step;
}

}  // namespace dlprim
