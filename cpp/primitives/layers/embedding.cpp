#include "primitives/layers/embedding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "jit/machine.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/reorder/zero_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaskBytes = 64 * 1024;
// Rows that are fetched in front of the one that is copied, and how much of each.
constexpr std::int64_t kRowsAhead = 2;
constexpr std::int64_t kMostAhead = 1024;
// Rows of one chain of float32 additions.
constexpr std::int64_t kChain = 256;
// A table above this is not found in the cache by who reads it next.
constexpr double kShareOfL3 = 1.0 / 2;

// Places of the indices, sorted by index and then by place; and where those of a row begin.
struct Occurrences {
    std::vector<std::int64_t> places;
    std::vector<std::int64_t> first;  // rows + 1
};

Occurrences occurrences_of(const EmbeddingBackward& it) {
    Occurrences found{std::vector<std::int64_t>(static_cast<std::size_t>(it.count)),
                      std::vector<std::int64_t>(static_cast<std::size_t>(it.rows) + 1)};
    for (std::int64_t i = 0; i < it.count; ++i) {
        ++found.first[static_cast<std::size_t>(it.indices[i]) + 1];
    }
    for (std::size_t row = 1; row < found.first.size(); ++row) {
        found.first[row] += found.first[row - 1];
    }
    std::vector<std::int64_t> next(found.first.begin(), found.first.end() - 1);
    for (std::int64_t i = 0; i < it.count; ++i) {
        found.places[static_cast<std::size_t>(next[static_cast<std::size_t>(it.indices[i])]++)] = i;
    }
    return found;
}

RowSpec sum_program(DType dtype) {
    RowBuilder row;
    row.add_to_column(row.tensor(dtype));
    return row.spec();
}

class RowSums {
public:
    explicit RowSums(const EmbeddingBackward& problem)
        : it_(problem),
          found_(occurrences_of(problem)),
          add_(row_kernel(sum_program(problem.dtype))),
          around_caches_(static_cast<double>(problem.rows * problem.width * size_of(DType::f32)) >
                         kShareOfL3 * this_machine().l3) {}

    void run() const {
        const Blocks tasks{
            it_.rows, std::max<std::int64_t>(kTaskBytes / (it_.width * size_of(DType::f32)), 1)};
        parallel_for(tasks.count(), [&](std::int64_t task) {
            std::vector<float> partial;
            const Range range = tasks.at(task);
            for (std::int64_t row = range.begin; row < range.end;) {
                const std::int64_t used = first_used(row, range.end);
                clear({row, used});
                if (used < range.end) sum(used, partial);
                row = used + 1;
            }
            if (around_caches_) finish_zeros();
        });
    }

private:
    Range places_of(std::int64_t row) const {
        const auto index = static_cast<std::size_t>(row);
        return {found_.first[index], found_.first[index + 1]};
    }

    // The first row from `row` on that an index points at, or `end`.
    std::int64_t first_used(std::int64_t row, std::int64_t end) const {
        while (row < end && places_of(row).size() == 0) ++row;
        return row;
    }

    // Most rows of a large table: zeros that nobody will find in the caches go around them.
    void clear(Range rows) const {
        const std::int64_t bytes = rows.size() * it_.width * size_of(DType::f32);
        if (bytes == 0) return;
        write_zeros({.first = reinterpret_cast<char*>(it_.diff_weights + rows.begin * it_.width),
                     .rows = 1,
                     .row_bytes = bytes,
                     .stride = bytes,
                     .around_caches = around_caches_});
    }

    void sum(std::int64_t row, std::vector<float>& partial) const {
        float* const result = it_.diff_weights + row * it_.width;
        std::fill_n(result, it_.width, 0.0F);
        const Range places = places_of(row);
        add_up({places.begin, std::min(places.begin + kChain, places.end)}, result);
        for (std::int64_t from = places.begin + kChain; from < places.end; from += kChain) {
            partial.assign(static_cast<std::size_t>(it_.width), 0.0F);
            add_up({from, std::min(from + kChain, places.end)}, partial.data());
            for (std::int64_t i = 0; i < it_.width; ++i) {
                result[i] += partial[static_cast<std::size_t>(i)];
            }
        }
    }

    void add_up(Range places, float* sums) const {
        const std::int64_t row_bytes = it_.width * size_of(it_.dtype);
        for (std::int64_t i = places.begin; i < places.end; ++i) {
            const std::int64_t place = found_.places[static_cast<std::size_t>(i)];
            RowArgs args{.rows = 1, .columns = it_.width};
            args.operands[0].data =
                const_cast<char*>(static_cast<const char*>(it_.diff_dst) + place * row_bytes);
            args.operands[1].data = sums;
            (*add_)(args);
        }
    }

    EmbeddingBackward it_;
    Occurrences found_;
    std::shared_ptr<const RowKernel> add_;
    bool around_caches_;
};

// No hardware foresees where a row begins.
void prefetch(const char* row, std::int64_t bytes) {
    for (std::int64_t i = 0; i < std::min(bytes, kMostAhead); i += kCacheLineBytes) {
        __builtin_prefetch(row + i);
    }
}

}  // namespace

void gather_rows(const std::int64_t* indices, std::int64_t count, const void* weights,
                 std::int64_t row_bytes, void* dst) {
    if (row_bytes == 0) return;
    const Blocks tasks{count, std::max<std::int64_t>(kTaskBytes / row_bytes, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        const auto row = [&](std::int64_t i) {
            return static_cast<const char*>(weights) + indices[i] * row_bytes;
        };
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            if (i + kRowsAhead < range.end) prefetch(row(i + kRowsAhead), row_bytes);
            std::memcpy(static_cast<char*>(dst) + i * row_bytes, row(i),
                        static_cast<std::size_t>(row_bytes));
        }
    });
}

void embedding_backward(const EmbeddingBackward& problem) {
    if (problem.width > 0) RowSums(problem).run();
}

}  // namespace dlprim
