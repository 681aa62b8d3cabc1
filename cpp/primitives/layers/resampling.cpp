#include "primitives/layers/resampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What one result reads along an axis.
struct Window {
    Window(const AxisWindows& axis, std::int64_t result)
        : begin(axis.begins[at(result)]),
          size(axis.places[at(result + 1)] - axis.places[at(result)]),
          weights(axis.weights.data() + axis.places[at(result)]) {}

    std::int64_t begin;
    std::int64_t size;
    const float* weights;
};

void validate_axis(const AxisWindows& axis, std::int64_t extent) {
    bool fits = axis.places.size() == axis.begins.size() + 1 && axis.places.front() == 0 &&
                axis.places.back() == static_cast<std::int64_t>(axis.weights.size());
    for (std::int64_t i = 0; fits && i < axis.results(); ++i) {
        const Window it(axis, i);
        fits = it.size >= 0 && it.begin >= 0 && it.begin + it.size <= extent;
    }
    if (!fits) throw std::invalid_argument("windows of an axis reach beyond what they read");
}

std::int64_t largest_of(const AxisWindows& axis) {
    std::int64_t largest = 0;
    for (std::int64_t i = 0; i < axis.results(); ++i) {
        largest = std::max(largest, Window(axis, i).size);
    }
    return largest;
}

// Pixels of a window that are summed in one step. Above, two steps take half the time or less where
// windows overlap along a row; elsewhere they only bound the lists.
constexpr std::int64_t kMostOverlapping = 64;
constexpr std::int64_t kMostSeparate = 1024;

// A fold, the largest with its tap, or a step of a sum.
constexpr std::size_t kSum = static_cast<std::size_t>(Fold::sum);
constexpr std::size_t kWithTap = 3;
constexpr std::size_t kFirstStep = 4;
constexpr std::size_t kLastStep = 5;
constexpr std::size_t kPrograms = 6;

DType operand_of(std::size_t which, DType dtype) { return which == kLastStep ? DType::f32 : dtype; }
DType result_of(std::size_t which, DType dtype) { return which == kFirstStep ? DType::f32 : dtype; }

constexpr std::uint32_t kEveryByte = 0x01010101;

// Operands: what is listed and results; of taps the first that a result sees as well, which it is
// where none beats the lowest number. Where taps choose, a number has one in each byte.
RowSpec program_of(std::size_t which, DType dtype) {
    const auto fold = static_cast<Fold>(which >= kFirstStep ? kSum : which);
    RowBuilder row;
    const RowValue x = row.listed(operand_of(which, dtype));
    if (fold == Fold::sum || fold == Fold::chosen) {
        const RowValue total = row.carried(0);
        if (fold == Fold::sum) {
            row.carry(total, multiply_add(x, row.number() * row.factor(), total));
        } else {
            row.carry(total, row.add_chosen(row.number(), x, total));
        }
        row.store(result_of(which, dtype), last(total));
        return row.spec();
    }
    const RowValue best = row.carried(-std::numeric_limits<float>::infinity());
    if (fold == Fold::largest) {
        row.carry(best, is_int8(dtype) ? larger(x, best) : select(beats(x, best), x, best));
        row.store(dtype, last(best));
        return row.spec();
    }
    const RowValue tap = row.carried(-1), first = row.per_row();
    row.carry(tap, select(beats(x, best), row.number(), tap));
    row.carry(best, select(beats(x, best), x, best));
    row.store(dtype, last(best));
    row.store(DType::u8, select(last(tap) < 0.0F, first, last(tap)));
    return row.spec();
}

const RowKernel& kernel_of(std::size_t which, DType dtype) {
    static const auto all = [] {
        std::array<std::map<DType, std::shared_ptr<const RowKernel>>, kPrograms> made;
        for (std::size_t i = 0; i < made.size(); ++i) {
            for (const DType it : {DType::f32, DType::bf16, DType::u8, DType::s8}) {
                if (is_int8(it) && i != static_cast<std::size_t>(Fold::largest)) continue;
                made.at(i)[it] = row_kernel(program_of(i, it));
            }
        }
        return made;
    }();
    return *all.at(which).at(dtype);
}

}  // namespace

Resampling::Resampling(Windows windows, Fold fold)
    : it_(std::move(windows)), fold_(fold), panels_(it_.src, it_.layout) {
    validate_axis(it_.rows, it_.src.height);
    validate_axis(it_.columns, it_.src.width);
    const bool overlap = it_.columns.places.back() > it_.src.width + it_.columns.results();
    const std::int64_t largest = largest_of(it_.rows) * largest_of(it_.columns);
    if (fold == Fold::sum && largest > (overlap ? kMostOverlapping : kMostSeparate)) {
        steps_ = overlap ? Steps::rows_first : Steps::columns_first;
        make_lists_of_steps();
    } else {
        make_lists();
    }
}

void Resampling::make_lists() {
    // Weights of rows are factors, taps are in the lists.
    std::map<std::vector<float>, std::size_t> known;
    for (std::int64_t row = 0; row < it_.rows.results(); ++row) {
        const Window h(it_.rows, row);
        const bool sums = fold_ == Fold::sum;
        const std::vector<float> key(h.weights, h.weights + h.size);
        const auto [found, is_new] =
            known.emplace(sums ? std::vector<float>(key.size()) : key, lists_.size());
        if (is_new) lists_.push_back(list_of(row));
        list_of_row_.push_back(found->second);
    }
}

void Resampling::make_lists_of_steps() {
    lists_.resize(2);
    const std::int64_t results = it_.columns.results();
    for (std::int64_t column = 0; column < results; ++column) {
        const Window w(it_.columns, column);
        for (std::int64_t s = 0; s < w.size; ++s) {
            lists_[0].entries.push_back({(w.begin + s) * panels_.width, w.weights[s], 0});
        }
        lists_[0].counts.push_back(w.size);
    }
    const std::int64_t pixels = steps_ == Steps::columns_first ? results : it_.src.width;
    for (std::int64_t r = 0; r < largest_of(it_.rows); ++r) {
        lists_[1].entries.push_back({r * pixels * panels_.width, 1, static_cast<std::int32_t>(r)});
    }
}

void Resampling::operator()(const FoldOperands& operands) const {
    const std::int64_t rows = it_.rows.results();
    parallel_for(it_.src.images * panels_.blocks * rows, [&](std::int64_t task) {
        if (steps_ == Steps::one) {
            run_row(operands, task / rows, task % rows);
        } else {
            run_steps(operands, task / rows, task % rows);
        }
    });
}

Resampling::RowList Resampling::list_of(std::int64_t row) const {
    RowList list;
    const Window h(it_.rows, row);
    for (std::int64_t column = 0; column < it_.columns.results(); ++column) {
        const Window w(it_.columns, column);
        for (std::int64_t r = 0; r < h.size; ++r) {
            for (std::int64_t s = 0; s < w.size; ++s) {
                float number = w.weights[s];
                if (fold_ != Fold::sum) number += h.weights[r];
                if (fold_ == Fold::chosen) {
                    number = std::bit_cast<float>(static_cast<std::uint32_t>(number) * kEveryByte);
                }
                list.entries.push_back({(r * it_.src.width + w.begin + s) * panels_.width, number,
                                        static_cast<std::int32_t>(r)});
            }
        }
        const std::int64_t count = h.size * w.size;
        list.counts.push_back(count);
        list.first.push_back(count == 0 ? 0 : h.weights[0] + w.weights[0]);
    }
    return list;
}

void Resampling::run_row(const FoldOperands& operands, std::int64_t panel, std::int64_t row) const {
    const RowList& list = lists_[list_of_row_[at(row)]];
    const Window h(it_.rows, row);
    const std::int64_t element = size_of(it_.src.dtype), columns = it_.columns.results();
    const std::int64_t from = first_read(panel, row), to = first_written(panel, row);
    RowArgs args{.list = list.entries.data(),
                 .factors = h.weights,
                 .counts = list.counts.data(),
                 .rows = columns,
                 .columns = panels_.channels(panel % panels_.blocks).size()};
    std::size_t next = 0;
    const auto add = [&](const void* data, std::int64_t offset, std::int64_t stride) {
        auto* const bytes = const_cast<char*>(static_cast<const char*>(data));
        args.operands.at(next++) = {bytes + offset, stride};
    };
    const bool with_tap = operands.taps_out != nullptr;
    add(operands.src, from * element, 0);
    if (fold_ == Fold::chosen) add(operands.taps, from, 0);
    if (with_tap) add(list.first.data(), 0, size_of(DType::f32));
    add(operands.dst, to * element, panels_.width * element);
    if (with_tap) add(operands.taps_out, to, panels_.width);
    kernel_of(with_tap ? kWithTap : static_cast<std::size_t>(fold_), it_.src.dtype)(args);
}

void Resampling::run_steps(const FoldOperands& operands, std::int64_t panel,
                           std::int64_t row) const {
    const std::int64_t element = size_of(it_.src.dtype), line = it_.src.width * panels_.width;
    const std::int64_t channels = panels_.channels(panel % panels_.blocks).size();
    auto* const src = const_cast<char*>(static_cast<const char*>(operands.src)) +
                      first_read(panel, row) * element;
    auto* const dst = static_cast<char*>(operands.dst) + first_written(panel, row) * element;
    const bool columns_first = steps_ == Steps::columns_first;
    const std::int64_t height = columns_first ? Window(it_.rows, row).size : 1;
    const std::int64_t sums =
        (columns_first ? it_.columns.results() * panels_.width : line) * size_of(DType::f32);
    const WorkspacePool::Lease scratch(WorkspacePool::lasting(), height * sums);
    if (columns_first) {
        for (std::int64_t r = 0; r < height; ++r) {
            fold_columns(
                {kFirstStep, src + r * line * element, scratch.data() + r * sums, channels});
        }
        fold_rows({kLastStep, scratch.data(), dst, channels}, row);
    } else {
        fold_rows({kFirstStep, src, scratch.data(), channels}, row);
        fold_columns({kLastStep, scratch.data(), dst, channels});
    }
}

void Resampling::fold_columns(const Step& step) const {
    constexpr float kFactor = 1;
    RowArgs args{.list = lists_[0].entries.data(),
                 .factors = &kFactor,
                 .counts = lists_[0].counts.data(),
                 .rows = it_.columns.results(),
                 .columns = step.channels};
    args.operands[0] = {step.from, 0};
    args.operands[1] = {step.to, panels_.width * size_of(result_of(step.program, it_.src.dtype))};
    kernel_of(step.program, it_.src.dtype)(args);
}

// Pixels with no channels between them that are left out are one row of the program.
void Resampling::fold_rows(const Step& step, std::int64_t row) const {
    const Window h(it_.rows, row);
    const std::int64_t pixels =
        steps_ == Steps::columns_first ? it_.columns.results() : it_.src.width;
    const bool dense = step.channels == panels_.width;
    const std::int64_t from = panels_.width * size_of(operand_of(step.program, it_.src.dtype));
    const std::int64_t to = panels_.width * size_of(result_of(step.program, it_.src.dtype));
    for (std::int64_t pixel = 0; pixel < (dense ? 1 : pixels); ++pixel) {
        RowArgs args{.list = lists_[1].entries.data(),
                     .factors = h.weights,
                     .counts = &h.size,
                     .rows = 1,
                     .columns = dense ? pixels * panels_.width : step.channels};
        args.operands[0] = {step.from + pixel * from, 0};
        args.operands[1] = {step.to + pixel * to, 0};
        kernel_of(step.program, it_.src.dtype)(args);
    }
}

std::int64_t Resampling::first_read(std::int64_t panel, std::int64_t row) const {
    const Window h(it_.rows, row);
    return h.size == 0 ? 0 : (panel * it_.src.height + h.begin) * it_.src.width * panels_.width;
}

std::int64_t Resampling::first_written(std::int64_t panel, std::int64_t row) const {
    return (panel * it_.rows.results() + row) * it_.columns.results() * panels_.width;
}

}  // namespace dlprim
