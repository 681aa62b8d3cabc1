#include "primitives/layers/resampling.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "primitives/tensor/parallel.h"
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

// A fold, or the largest with its tap.
constexpr std::size_t kWithTap = 3;

constexpr std::uint32_t kEveryByte = 0x01010101;

// Operands: what is listed and results; of taps the first that a result sees as well, which it is
// where none beats the lowest number. Where taps choose, a number has one in each byte.
RowSpec program_of(std::size_t which, DType dtype) {
    const auto fold = static_cast<Fold>(which);
    RowBuilder row;
    const RowValue x = row.listed(dtype);
    if (fold == Fold::sum || fold == Fold::chosen) {
        const RowValue total = row.carried(0);
        if (fold == Fold::sum) {
            row.carry(total, multiply_add(x, row.number() * row.factor(), total));
        } else {
            row.carry(total, row.add_chosen(row.number(), x, total));
        }
        row.store(dtype, last(total));
        return row.spec();
    }
    const RowValue best = row.carried(-std::numeric_limits<float>::infinity());
    if (fold == Fold::largest) {
        row.carry(best, select(beats(x, best), x, best));
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
        std::array<std::array<std::shared_ptr<const RowKernel>, 2>, kWithTap + 1> made;
        for (std::size_t i = 0; i < made.size(); ++i) {
            made.at(i) = {row_kernel(program_of(i, DType::f32)),
                          row_kernel(program_of(i, DType::bf16))};
        }
        return made;
    }();
    return *all.at(which).at(dtype == DType::f32 ? 0 : 1);
}

}  // namespace

Resampling::Resampling(Windows windows, Fold fold)
    : it_(std::move(windows)), fold_(fold), panels_(it_.src, it_.layout) {
    validate_axis(it_.rows, it_.src.height);
    validate_axis(it_.columns, it_.src.width);
    // Weights of rows are factors, taps are in the lists.
    std::map<std::vector<float>, std::size_t> known;
    for (std::int64_t row = 0; row < it_.rows.results(); ++row) {
        const Window h(it_.rows, row);
        const bool sums = fold == Fold::sum;
        const std::vector<float> key(h.weights, h.weights + h.size);
        const auto [found, is_new] =
            known.emplace(sums ? std::vector<float>(key.size()) : key, lists_.size());
        if (is_new) lists_.push_back(list_of(row));
        list_of_row_.push_back(found->second);
    }
}

void Resampling::operator()(const FoldOperands& operands) const {
    const std::int64_t rows = it_.rows.results();
    parallel_for(it_.src.images * panels_.blocks * rows,
                 [&](std::int64_t task) { run_row(operands, task / rows, task % rows); });
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
    const std::int64_t from =
        h.size == 0 ? 0 : (panel * it_.src.height + h.begin) * it_.src.width * panels_.width;
    const std::int64_t to = (panel * it_.rows.results() + row) * columns * panels_.width;
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

}  // namespace dlprim
