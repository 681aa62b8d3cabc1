#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/winograd/winograd_transform.h"
#include "rows/row_kernel.h"
#include "typed_numbers.h"
#include "winograd_matrices.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::filter_matrix;
using testing::input_matrix;
using testing::kPoison;
using testing::Matrix;
using testing::Numbers;
using testing::powers;
using testing::transposed;

constexpr std::int64_t kChannels[] = {1, 7, 15, 16, 17, 33, 64};
constexpr std::pair<int, int> kTiles[] = {{4, 4}, {4, 3}, {3, 4}, {3, 3}, {2, 2}};
constexpr double kPerTerm = 1e-6;         // float32, of the sum of magnitudes
constexpr double kHalf = 1.0 / (1 << 8);  // bfloat16, of the result
constexpr std::int64_t kGap = 3;          // elements between the channels of two pixels

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<Isa> isas() {
    std::vector<Isa> usable;
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
        if (isa <= usable_isa()) usable.push_back(isa);
    }
    return usable;
}

bool is_zero(const std::vector<double>& row) {
    return std::all_of(row.begin(), row.end(), [](double each) { return each == 0; });
}

// h * values * w^T at one place, and the sum of its magnitudes. What has the factor 0 is not read.
template <class Value>
std::pair<double, double> both_sides(const std::vector<double>& h, const std::vector<double>& w,
                                     const Value& value) {
    double sum = 0, magnitude = 0;
    for (std::size_t i = 0; i < h.size(); ++i) {
        for (std::size_t j = 0; j < w.size(); ++j) {
            if (h[i] * w[j] == 0) continue;
            const double term = h[i] * w[j] * value(static_cast<int>(i), static_cast<int>(j));
            sum += term;
            magnitude += std::abs(term);
        }
    }
    return {sum, magnitude};
}

// ---------------------------------------------------------------- to slots

struct Expansion {
    TileTransform patch;  // but for where pixels and slots lie
    Matrix h;
    Matrix w;
    std::int64_t channels;

    // Elements of the storage for one that is counted.
    bool in_pairs() const {
        return patch.kind == TileKind::even_pair_filter || patch.kind == TileKind::odd_pair_filter;
    }
    std::int64_t high() const { return patch.rows.end - patch.rows.begin; }
    std::int64_t wide() const { return patch.columns.end - patch.columns.begin; }
    std::int64_t slots() const { return static_cast<std::int64_t>(h.rows.size() * w.rows.size()); }
    std::int64_t stride() const { return whole_vectors(channels) + kWinogradLanes; }
};

// Empty where slots hold what they should, and nothing else was written.
std::string fault(const Expansion& it, const Numbers& src, const Numbers& out) {
    const auto& patch = it.patch;
    for (std::int64_t slot = 0; slot < it.slots(); ++slot) {
        const auto& row = it.h.rows[at(slot) / it.w.rows.size()];
        const auto& column = it.w.rows[at(slot) % it.w.rows.size()];
        for (std::int64_t c = 0; c < it.stride(); ++c) {
            const float actual = out.get(slot * it.stride() + c);
            if (is_zero(row) || is_zero(column) || c >= it.channels) {
                if (actual != kPoison) return "slot " + std::to_string(slot) + " overwritten";
                continue;
            }
            const auto [sum, magnitude] = both_sides(row, column, [&](int i, int j) {
                const bool exists = i >= patch.rows.begin && i < patch.rows.end &&
                                    j >= patch.columns.begin && j < patch.columns.end;
                if (!exists) return 0.0F;
                const std::int64_t pixel =
                    (i - patch.rows.begin) * it.wide() + j - patch.columns.begin;
                const std::int64_t element = pixel * it.channels + c;
                if (!it.in_pairs()) return src.get(element);
                return src.get(2 * element + (patch.kind == TileKind::odd_pair_filter ? 1 : 0));
            });
            if (!(std::abs(actual - sum) <= kPerTerm * magnitude)) {
                return "slot " + std::to_string(slot) + " channel " + std::to_string(c);
            }
        }
    }
    return "";
}

RowArgs args_of(std::int64_t channels, const std::vector<const void*>& operands) {
    RowArgs args;
    args.rows = 1;
    args.columns = channels;
    std::size_t next = 0;
    for (const void* operand : operands) args.operands[next++] = {const_cast<void*>(operand), 0};
    return args;
}

// Only the pixels that exist are in memory, flush with the fence; behind the slots is one, too.
void check_expand(const Expansion& it) {
    const std::int64_t each = it.in_pairs() ? 2 : 1;
    TileTransform patch = it.patch;
    patch.row = it.wide() * it.channels;
    patch.pixel = it.channels;
    patch.slot_stride = it.stride();
    const std::int64_t first = patch.rows.begin * patch.row + patch.columns.begin * patch.pixel;
    for (const Fence fence : {Fence::before, Fence::after}) {
        const Numbers src(patch.dtype, it.high() * patch.row * each, fence);
        const Numbers out(DType::f32, it.slots() * it.stride(), fence);
        src.draw(static_cast<unsigned>(it.channels));
        const RowArgs args = args_of(it.channels, {reinterpret_cast<const char*>(src.address(0)) -
                                                       first * each * size_of(patch.dtype),
                                                   out.floats()});
        for (const Isa isa : isas()) {
            CAPTURE(name_of(isa));
            CAPTURE(name_of(patch.dtype));
            CAPTURE(it.channels);
            CAPTURE(patch.tile_h);
            CAPTURE(patch.tile_w);
            out.poison();
            (*row_kernel(tile_program(patch), isa))(args);
            CHECK(fault(it, src, out) == "");
        }
    }
}

// The whole patch and what rims leave of it, down to nothing.
void check_rims(TileKind kind, int rim, Matrix (*matrix)(int)) {
    for (const auto& [tile_h, tile_w] : kTiles) {
        const int high = tile_h + rim, wide = tile_w + rim;
        const std::pair<Range, Range> patches[] = {{{0, high}, {0, wide}},
                                                   {{1, high}, {1, wide}},
                                                   {{0, high - 1}, {1, 2}},
                                                   {{high - 1, high}, {0, wide - 1}}};
        for (const DType dtype : {DType::f32, DType::bf16}) {
            for (const std::int64_t channels : kChannels) {
                for (const auto& [rows, columns] : patches) {
                    check_expand({{.kind = kind,
                                   .dtype = dtype,
                                   .tile_h = tile_h,
                                   .tile_w = tile_w,
                                   .rows = rows,
                                   .columns = columns},
                                  matrix(tile_h),
                                  matrix(tile_w),
                                  channels});
                }
            }
        }
    }
}

TEST_CASE("inputs to slots") { check_rims(TileKind::input, 2, input_matrix); }

TEST_CASE("gradients to slots") {
    check_rims(TileKind::gradient, 0, [](int tile) { return powers(tile, tile); });
}

TEST_CASE("filters to slots") {
    for (const TileKind kind :
         {TileKind::filter, TileKind::even_pair_filter, TileKind::odd_pair_filter}) {
        const DType dtype = kind == TileKind::filter ? DType::f32 : DType::bf16;
        for (const int tile : {4, 2}) {
            for (const std::int64_t channels : kChannels) {
                const Matrix matrix = filter_matrix(tile);
                check_expand({{.kind = kind,
                               .dtype = dtype,
                               .tile_h = tile,
                               .tile_w = tile,
                               .rows = {0, 3},
                               .columns = {0, 3}},
                              matrix,
                              matrix,
                              channels});
            }
        }
    }
}

// ---------------------------------------------------------------- from slots

struct Reduction {
    TileTransform patch;  // but for where pixels and slots lie
    Matrix h;             // a row for each result
    Matrix w;
    std::int64_t channels;
    bool biased;

    std::int64_t pixel() const { return channels + kGap; }
    std::int64_t row() const { return patch.columns.end * pixel(); }
    // The gap behind the last pixel is not there.
    std::int64_t size() const { return patch.rows.end * row() - kGap; }
    std::int64_t slots() const { return h.columns * w.columns; }
    std::int64_t stride() const { return whole_vectors(channels); }
};

struct Sources {
    Numbers slots;
    Numbers bias;
    Numbers residual;
};

std::string fault(const Reduction& it, const Sources& from, const Numbers& dst) {
    for (std::int64_t element = 0; element < it.size(); ++element) {
        const float actual = dst.get(element);
        const std::int64_t c = element % it.pixel();
        if (c >= it.channels) {
            if (actual != kPoison) return "gap at " + std::to_string(element) + " overwritten";
            continue;
        }
        auto [sum, bound] = both_sides(
            it.h.rows[at(element / it.row())], it.w.rows[at(element % it.row() / it.pixel())],
            [&](int i, int j) { return from.slots.get((i * it.w.columns + j) * it.stride() + c); });
        for (const double added : {it.biased ? from.bias.get(c) : 0.0F,
                                   it.patch.residual ? from.residual.get(element) : 0.0F}) {
            sum += added;
            bound += std::abs(added);
        }
        if (it.patch.relu) sum = std::max(0.0, sum);
        bound = kPerTerm * bound + (it.patch.dtype == DType::bf16 ? kHalf * std::abs(sum) : 0);
        if (!(std::abs(actual - sum) <= bound)) return "element " + std::to_string(element);
    }
    return "";
}

// Memory ends with the last channel of the last result.
void check_reduce(const Reduction& it) {
    TileTransform patch = it.patch;
    patch.row = it.row();
    patch.pixel = it.pixel();
    patch.slot_stride = it.stride();
    for (const Fence fence : {Fence::before, Fence::after}) {
        const Sources from{{DType::f32, it.slots() * it.stride(), fence},
                           {DType::f32, it.channels, fence},
                           {patch.dtype, it.size(), fence}};
        from.slots.draw(1);
        from.bias.draw(2);
        from.residual.draw(3);
        const Numbers dst(patch.dtype, it.size(), fence);
        std::vector<const void*> operands = {from.slots.floats()};
        if (patch.residual) operands.push_back(from.residual.address(0));
        if (it.biased) operands.push_back(from.bias.floats());
        operands.push_back(dst.address(0));
        for (const Isa isa : isas()) {
            CAPTURE(name_of(isa));
            CAPTURE(name_of(patch.dtype));
            CAPTURE(it.channels);
            CAPTURE(patch.rows.end);
            CAPTURE(patch.columns.end);
            dst.poison();
            (*row_kernel(tile_program(patch), isa))(args_of(it.channels, operands));
            CHECK(fault(it, from, dst) == "");
        }
    }
}

TEST_CASE("slots to results") {
    for (const auto& [tile_h, tile_w] : kTiles) {
        const Matrix h = transposed(powers(tile_h, tile_h)), w = transposed(powers(tile_w, tile_w));
        for (const DType dtype : {DType::f32, DType::bf16}) {
            for (const std::int64_t channels : kChannels) {
                for (const bool fused : {false, true}) {
                    TileTransform patch{.kind = TileKind::result,
                                        .dtype = dtype,
                                        .tile_h = tile_h,
                                        .tile_w = tile_w,
                                        .rows = {0, tile_h},
                                        .columns = {0, tile_w},
                                        .residual = fused,
                                        .relu = fused};
                    check_reduce({patch, h, w, channels, true});
                    patch.rows.end = tile_h - 1;
                    patch.columns.end = 1;
                    check_reduce({patch, h, w, channels, true});
                }
            }
        }
    }
}

TEST_CASE("slots to the gradient of a filter") {
    for (const int tile : {4, 2}) {
        const Matrix matrix = transposed(filter_matrix(tile));
        for (const std::int64_t channels : kChannels) {
            for (const bool adds : {false, true}) {
                check_reduce({{.kind = TileKind::filter_gradient,
                               .tile_h = tile,
                               .tile_w = tile,
                               .rows = {0, 3},
                               .columns = {0, 3},
                               .residual = adds},
                              matrix,
                              matrix,
                              channels,
                              false});
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
