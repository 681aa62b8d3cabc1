#include "graph/elements/indexed_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/elements/element.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

using Extents = std::vector<std::int64_t>;

constexpr std::int64_t kTaskElements = 16 * 1024;
constexpr std::int64_t kRowElements = 256;  // of a part of rows for which indices are gone through

std::int64_t product(const Extents& extents, std::size_t begin, std::size_t end) {
    std::int64_t made = 1;
    for (std::size_t i = begin; i < end; ++i) made *= extents[i];
    return made;
}

Extents element_strides(const Extents& shape) {
    Extents made(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) made[i - 1] = made[i] * shape[i];
    return made;
}

// Of indices in lines: where a row of the array is that one of them says.
struct Indices {
    Extents shape = {};       // of indices; the last extent is a line
    Extents strides = {};     // of the array, in elements, along these axes
    Extents extents = {};     // of the axes that an index says
    Extents components = {};  // strides along them
    std::int64_t row = 1;     // elements

    std::int64_t columns() const { return shape.back(); }
    std::int64_t lines() const { return product(shape, 0, shape.size() - 1); }

    std::int64_t start_of(std::int64_t line) const {
        std::int64_t made = 0;
        for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
            made += line % shape[axis] * strides[axis];
            line /= shape[axis];
        }
        return made;
    }
};

[[noreturn]] void refuse_index(std::int64_t index, std::int64_t extent) {
    throw std::out_of_range("index " + std::to_string(index) + " is outside of " +
                            std::to_string(extent) + " elements");
}

// An index is read once: whoever owns the array may write to it meanwhile.
template <class Index>
std::int64_t from_front(const Index& at, std::int64_t extent) {
    const std::int64_t given = at;
    const std::int64_t index = given + (given < 0 ? extent : 0);
    if (static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(extent)) {
        refuse_index(given, extent);
    }
    return index;
}

// Calls move(element of the array, number of the index) for each.
template <class Index, class Move>
void visit(const Indices& it, const Index* given, const Range& lines, const Range& columns,
           const Move& move) {
    const auto depth = static_cast<std::int64_t>(it.extents.size());
    const std::int64_t step = it.strides.back();
    for (std::int64_t line = lines.begin; line < lines.end; ++line) {
        const std::int64_t start = it.start_of(line), first = line * it.columns();
        if (depth == 1) {
            const std::int64_t extent = it.extents[0], component = it.components[0];
            if (step == 0 && component == 1) {  // elements of a row
                for (std::int64_t i = first + columns.begin; i < first + columns.end; ++i) {
                    move(start + from_front(given[i], extent), i);
                }
                continue;
            }
            for (std::int64_t i = columns.begin; i < columns.end; ++i) {
                const std::int64_t index = from_front(given[first + i], extent);
                move(start + i * step + index * component, first + i);
            }
            continue;
        }
        for (std::int64_t i = columns.begin; i < columns.end; ++i) {
            std::int64_t place = start + i * step;
            for (std::int64_t k = 0; k < depth; ++k) {
                const auto axis = static_cast<std::size_t>(k);
                place += from_front(given[(first + i) * depth + k], it.extents[axis]) *
                         it.components[axis];
            }
            move(place, first + i);
        }
    }
}

// Parts of the indices, and of the rows that they say, which are independent of each other.
struct Shares {
    Blocks lines = {};
    Blocks columns = {};
    Blocks row = {};

    std::int64_t count() const { return lines.count() * columns.count() * row.count(); }
};

std::int64_t block_of(std::int64_t extent, std::int64_t each) {
    return std::clamp<std::int64_t>(kTaskElements / std::max<std::int64_t>(each, 1), 1,
                                    std::max<std::int64_t>(extent, 1));
}

Shares one_share(const Indices& it) {
    const auto whole = [](std::int64_t extent) {
        return Blocks{extent, std::max<std::int64_t>(extent, 1)};
    };
    return {whole(it.lines()), whole(it.columns()), whole(it.row)};
}

Shares shares_of_taken(const Indices& it) {
    Shares made = one_share(it);
    if (it.lines() >= it.columns()) {
        made.lines.block = block_of(it.lines(), it.columns() * it.row);
    } else {
        made.columns.block = block_of(it.columns(), it.row);
    }
    return made;
}

// Written by one thread are all indices that may say the same element.
Shares shares_of_written(const Indices& it) {
    Shares made = one_share(it);
    if (it.shape.size() > 1 && it.strides[0] != 0) {
        const std::int64_t each = it.lines() / std::max<std::int64_t>(it.shape[0], 1);
        made.lines.block =
            std::max<std::int64_t>(each, 1) * block_of(it.shape[0], each * it.columns());
    } else if (it.strides.back() != 0) {
        made.columns.block = block_of(it.columns(), it.lines());
    } else {
        made.row.block = std::max(kRowElements, block_of(it.row, it.lines() * it.columns()));
    }
    return made;
}

template <class Run>
void share(const Shares& shares, const Run& run) {
    parallel_for(shares.count(), [&](std::int64_t task) {
        const std::int64_t row = task % shares.row.count(), rest = task / shares.row.count();
        run(shares.lines.at(rest / shares.columns.count()),
            shares.columns.at(rest % shares.columns.count()), shares.row.at(row));
    });
}

struct Step {
    Indices indices = {};
    IndexedValues values = {};
    std::int64_t bytes = 0;    // of src
    std::int64_t element = 0;  // bytes

    template <class Index, class Word>
    void take_words(const Addresses& at) const {
        const Word* const src = at[values.src];
        Word* const dst = at[values.dst];
        share(shares_of_taken(indices), [&](const Range& lines, const Range& columns, Range) {
            visit(indices, static_cast<const Index*>(at[values.indices]), lines, columns,
                  [&](std::int64_t place, std::int64_t i) { dst[i] = src[place]; });
        });
    }

    template <class Index>
    void take_rows(const Addresses& at) const {
        const char* const src = at[values.src];
        char* const dst = at[values.dst];
        const auto row = static_cast<std::size_t>(indices.row * element);
        share(shares_of_taken(indices), [&](const Range& lines, const Range& columns, Range) {
            visit(indices, static_cast<const Index*>(at[values.indices]), lines, columns,
                  [&](std::int64_t place, std::int64_t i) {
                      std::memcpy(dst + i * static_cast<std::int64_t>(row), src + place * element,
                                  row);
                  });
        });
    }

    template <class Index>
    void take(const Addresses& at) const {
        if (indices.row == 1 && element == 1) return take_words<Index, std::uint8_t>(at);
        if (indices.row == 1 && element == 2) return take_words<Index, std::uint16_t>(at);
        if (indices.row == 1 && element == 4) return take_words<Index, std::uint32_t>(at);
        if (indices.row == 1 && element == 8) return take_words<Index, std::uint64_t>(at);
        take_rows<Index>(at);
    }

    template <class Index, class T, class Join>
    void write(const Addresses& at, const Join& join) const {
        const T* const updates = at[values.updates];
        T* const dst = at[values.dst];
        const Blocks copied{bytes, kTaskElements * 8};
        const char* const src = at[values.src];
        parallel_for(copied.count(), [&](std::int64_t task) {
            const Range part = copied.at(task);
            std::memcpy(reinterpret_cast<char*>(dst) + part.begin, src + part.begin,
                        static_cast<std::size_t>(part.size()));
        });
        const std::int64_t row = indices.row;
        share(shares_of_written(indices),
              [&](const Range& lines, const Range& columns, const Range& part) {
                  visit(indices, static_cast<const Index*>(at[values.indices]), lines, columns,
                        [&](std::int64_t place, std::int64_t i) {
                            T* const to = dst + place;
                            const T* const from = updates + i * row;
                            for (std::int64_t k = part.begin; k < part.end; ++k) {
                                to[k] = join(to[k], from[k]);
                            }
                        });
              });
    }
};

using Run = std::function<void(const Addresses&)>;

template <class T>
struct Largest {
    T operator()(T a, T b) const {
        if constexpr (kIsReal<T>) {
            if (std::isnan(static_cast<Computed<T>>(a))) return a;
            return a >= b ? a : b;
        } else {
            return std::max(a, b);
        }
    }
};

template <class T>
struct Least {
    T operator()(T a, T b) const {
        if constexpr (kIsReal<T>) {
            if (std::isnan(static_cast<Computed<T>>(a))) return a;
            return a <= b ? a : b;
        } else {
            return std::min(a, b);
        }
    }
};

// Sums and products may leave the type, as unsigned numbers do.
template <class T>
using Sum = std::conditional_t<kIsReal<T>, Computed<T>, std::uint64_t>;

template <class Index, class T>
Run writing(const Step& it, const std::string& how) {
    const auto joined = [&](auto join) -> Run {
        return [it, join](const Addresses& at) { it.write<Index, T>(at, join); };
    };
    if (how == "none") return joined([](T, T b) { return b; });
    if (how == "max") return joined(Largest<T>());
    if (how == "min") return joined(Least<T>());
    if (how == "add") {
        return joined([](T a, T b) { return static_cast<T>(Sum<T>(a) + Sum<T>(b)); });
    }
    if (how == "mul") {
        return joined([](T a, T b) { return static_cast<T>(Sum<T>(a) * Sum<T>(b)); });
    }
    throw std::invalid_argument("updates are joined by '" + how +
                                "', expected none, add, mul, max or min");
}

template <class Index>
Run run_of(const Step& it, const std::string& dtype, const std::string& how) {
    if (it.values.updates < 0) return [it](const Addresses& at) { it.take<Index>(at); };
    return with_element_type(
        dtype, [&](auto of) { return writing<Index, typename decltype(of)::Type>(it, how); });
}

// Of an index for each element.
Indices along_axis(const Extents& src, const Extents& indices, int axis) {
    Indices made{.shape = indices, .strides = element_strides(src)};
    const auto place = static_cast<std::size_t>(axis);
    made.extents = {src[place]};
    made.components = {made.strides[place]};
    made.strides[place] = 0;
    return made;
}

// Of indices in the last axis.
Indices along_axes(const Extents& src, const Extents& indices, int batch) {
    const Extents all = element_strides(src);
    const auto first = static_cast<std::size_t>(batch);
    const auto depth = static_cast<std::size_t>(indices.back());
    Indices made{.shape = {indices.begin(), indices.end() - 1}};
    made.strides.assign(made.shape.size(), 0);
    std::copy_n(all.begin(), first, made.strides.begin());
    const auto from = static_cast<std::ptrdiff_t>(first), to = static_cast<std::ptrdiff_t>(depth);
    made.extents.assign(src.begin() + from, src.begin() + from + to);
    made.components.assign(all.begin() + from, all.begin() + from + to);
    made.row = product(src, first + depth, src.size());
    if (made.shape.empty() || batch == 0) {
        made.shape = {product(made.shape, 0, made.shape.size())};
        made.strides = {0};
    }
    return made;
}

bool fits_axis(const Extents& src, const Extents& indices, int axis) {
    if (indices.size() != src.size() || axis >= static_cast<int>(src.size())) return false;
    for (std::size_t i = 0; i < src.size(); ++i) {
        if (static_cast<int>(i) != axis && indices[i] > src[i]) return false;
    }
    return true;
}

bool fits_axes(const Extents& src, const Extents& indices, int batch) {
    if (indices.empty() || batch < 0 || batch >= static_cast<int>(indices.size())) return false;
    return batch + indices.back() <= static_cast<std::int64_t>(src.size()) &&
           std::equal(src.begin(), src.begin() + batch, indices.begin());
}

}  // namespace

NetworkStep indexed_step(const Network& network, const IndexedValues& values,
                         const Indexing& indexing, std::string label) {
    const NetworkTensor &src = network.tensor(values.src),
                        &indices = network.tensor(values.indices),
                        &dst = network.tensor(values.dst);
    const bool writes = values.updates >= 0;
    const NetworkTensor& moved = writes ? network.tensor(values.updates) : dst;
    const bool has_axis = indexing.axis >= 0;
    const bool is_wide = indices.dtype == "int64";
    bool fits = has_axis ? fits_axis(src.shape, indices.shape, indexing.axis)
                         : fits_axes(src.shape, indices.shape, indexing.batch);
    Step it{.values = values, .bytes = src.bytes(), .element = src.element};
    Extents wanted = indices.shape;
    if (fits) {
        it.indices = has_axis ? along_axis(src.shape, indices.shape, indexing.axis)
                              : along_axes(src.shape, indices.shape, indexing.batch);
        if (!has_axis) {
            wanted.pop_back();
            wanted.insert(wanted.end(), src.shape.begin() + indexing.batch + indices.shape.back(),
                          src.shape.end());
        }
    }
    fits = fits && moved.shape == wanted && moved.dtype == src.dtype && dst.dtype == src.dtype &&
           (!writes || dst.shape == src.shape) && (is_wide || indices.dtype == "int32") &&
           src.is_dense() && indices.is_dense() && dst.is_dense() && moved.is_dense();
    if (!fits) {
        throw std::invalid_argument("elements of " + src.described() + " at " +
                                    indices.described() + (writes ? " become " : " are ") +
                                    moved.described() +
                                    ", expected int32 or int64 indices, and shapes that fit them, "
                                    "all in C order");
    }
    NetworkStep step{.kind = writes ? "scatter" : "gather",
                     .label = std::move(label),
                     .reads = {values.src, values.indices},
                     .writes = {values.dst}};
    if (writes) step.reads.push_back(values.updates);
    step.run = is_wide ? run_of<std::int64_t>(it, src.dtype, indexing.how)
                       : run_of<std::int32_t>(it, src.dtype, indexing.how);
    return step;
}

}  // namespace dlprim
