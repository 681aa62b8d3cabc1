// Compiled once per target, as per_isa.h describes.
#include "primitives/rnn/rnn_gates.h"

#include <algorithm>
#include <cstdint>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/rnn/rnn_gates.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/rnn/rnn_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Offsets of a row in the operands of a tile.
struct RowAt {
    std::int64_t panel;
    std::int64_t plain;
    std::int64_t gates;
};

RowAt row_at(const GateTile& tile, std::int64_t row, std::int64_t gates) {
    return {row * tile.width, row * tile.K, row * gates * tile.K};
}

// The gradient of what reaches the hidden state after the step.
template <class Element, class Part>
HWY_INLINE FloatVector diff_hidden_at(const GateTile& tile, const RowAt& at, std::int64_t k,
                                      Part part) {
    const auto* const diff_dst = static_cast<const Element*>(tile.diff_dst);
    const FloatVector sum = hn::Add(load_values(tile.diff_hidden + at.panel + k, All()),
                                    load_values(diff_dst + at.plain + k, part));
    if (tile.product == nullptr) return sum;
    return hn::Add(sum, load_values(tile.product + at.panel + k, All()));
}

// The gradient of a pre-activation, to its slot and its bias.
template <class Element>
HWY_INLINE void put_delta(const GateTile& tile, const RowAt& at, std::int64_t k, std::int64_t slot,
                          FloatVector delta) {
    auto* const deltas = static_cast<Element*>(tile.deltas) + slot * tile.slot_stride;
    store_values(delta, deltas + at.panel + k, All());
    float* const sum = tile.diff_bias + slot * tile.bias_stride + k;
    store_values(hn::Add(load_values(sum, All()), delta), sum, All());
}

// A sum of a gate.
template <class Part>
HWY_INLINE FloatVector sum_at(const GateTile& tile, const RowAt& at, std::int64_t k,
                              std::int64_t slot, Part part) {
    const float* const sum = tile.sums + at.panel + slot * tile.slot_stride + k;
    hwy::Prefetch(sum + tile.next_sums);
    return load_values(sum, part);
}

template <class Element, class Part>
HWY_INLINE void put_hidden(const GateTile& tile, const RowAt& at, std::int64_t k, FloatVector h,
                           Part part) {
    store_values(h, static_cast<Element*>(tile.next_hidden) + at.panel + k, All());
    store_values(h, static_cast<Element*>(tile.dst) + at.plain + k, part);
}

// A line of each gate and of other rows that the next tile will read.
HWY_INLINE void fetch_next(const GateTile& tile, const float* gates, std::int64_t gate_count) {
    const std::int64_t ahead = tile.next.rows * gate_count * tile.K + tile.next.channels;
    for (std::int64_t gate = 0; gate < gate_count; ++gate) {
        hwy::Prefetch(gates + ahead + gate * tile.K);
    }
}

HWY_INLINE void fetch_next_row(const GateTile& tile, const float* row) {
    hwy::Prefetch(row + tile.next.rows * tile.K + tile.next.channels);
}

// body(first channel, which of a vector's lanes there are, lanes of a panel) along a panel: All
// where the vector lies within `channels`, else First, with a count from 0.
template <class Body>
HWY_INLINE void along_panel(std::int64_t channels, std::int64_t width, const Body& body) {
    std::int64_t i = 0;
    for (; i + kFloatLanes <= channels; i += kFloatLanes) body(i, All{});
    for (; i < width; i += kFloatLanes) {
        body(i, First{std::max<std::int64_t>(channels - i, 0)});
    }
}

// x (1 - x), the derivative of sigmoid by its result.
HWY_INLINE FloatVector logistic_slope(FloatVector x) { return hn::NegMulAdd(x, x, x); }
HWY_INLINE FloatVector tanh_slope(FloatVector x) { return hn::NegMulAdd(x, x, number(1)); }

struct LstmCell {
    static constexpr std::int64_t kGates = 4;

    // i, f, g and o in turn.
    template <class Element>
    static HWY_INLINE void forward_row(const GateTile& tile, std::int64_t row) {
        const RowAt at = row_at(tile, row, kGates);
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            const FloatVector i = sigmoid(sum_at(tile, at, k, 0, part));
            const FloatVector f = sigmoid(sum_at(tile, at, k, 1, part));
            const FloatVector g = tanh(sum_at(tile, at, k, 2, part));
            const FloatVector o = sigmoid(sum_at(tile, at, k, 3, part));
            float* const state = tile.state + at.panel + k;
            const FloatVector c = hn::MulAdd(f, load_values(state, All()), hn::Mul(i, g));
            const FloatVector h = hn::Mul(o, tanh(c));
            store_values(c, state, All());
            put_hidden<Element>(tile, at, k, h, part);
            if (tile.gates == nullptr) return;
            float* const gates = tile.gates + at.gates + k;
            store_values(i, gates, part);
            store_values(f, gates + tile.K, part);
            store_values(g, gates + 2 * tile.K, part);
            store_values(o, gates + 3 * tile.K, part);
            store_values(c, tile.cells + at.plain + k, part);
        });
    }

    template <class Element>
    static HWY_INLINE void backward_row(const GateTile& tile, std::int64_t row) {
        const RowAt at = row_at(tile, row, kGates);
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            float* const diff_hidden = tile.diff_hidden + at.panel + k;
            float* const diff_cells = tile.diff_cells + at.panel + k;
            const FloatVector dh = diff_hidden_at<Element>(tile, at, k, part);
            const float* const gates = tile.gates + at.gates + k;
            fetch_next(tile, gates, kGates);
            fetch_next_row(tile, tile.cells + at.plain + k);
            const FloatVector i = load_values(gates, part);
            const FloatVector f = load_values(gates + tile.K, part);
            const FloatVector g = load_values(gates + 2 * tile.K, part);
            const FloatVector o = load_values(gates + 3 * tile.K, part);
            const FloatVector c = tanh(load_values(tile.cells + at.plain + k, part));
            const FloatVector last = tile.last_cells == nullptr
                                         ? hn::Zero(Floats())
                                         : load_values(tile.last_cells + at.plain + k, part);
            const FloatVector dc =
                hn::MulAdd(hn::Mul(dh, o), tanh_slope(c), load_values(diff_cells, All()));
            const auto put = [&](std::int64_t slot, FloatVector delta)
                                 HWY_ATTR { put_delta<Element>(tile, at, k, slot, delta); };
            put(0, hn::Mul(hn::Mul(dc, g), logistic_slope(i)));
            put(1, hn::Mul(hn::Mul(dc, last), logistic_slope(f)));
            put(2, hn::Mul(hn::Mul(dc, i), tanh_slope(g)));
            put(3, hn::Mul(hn::Mul(dh, c), logistic_slope(o)));
            store_values(hn::Mul(dc, f), diff_cells, All());
            store_values(hn::Zero(Floats()), diff_hidden, All());
        });
    }
};

struct GruCell {
    static constexpr std::int64_t kGates = 3;

    // r, z and n in turn.
    template <class Element>
    static HWY_INLINE void forward_row(const GateTile& tile, std::int64_t row) {
        const RowAt at = row_at(tile, row, kGates);
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            const FloatVector r = sigmoid(sum_at(tile, at, k, 0, part));
            const FloatVector z = sigmoid(sum_at(tile, at, k, 1, part));
            const FloatVector hidden_n =
                hn::Add(sum_at(tile, at, k, 3, part), load_values(tile.hidden_bias + k, part));
            const FloatVector n = tanh(hn::MulAdd(r, hidden_n, sum_at(tile, at, k, 2, part)));
            float* const state = tile.state + at.panel + k;
            const FloatVector h = hn::MulAdd(z, load_values(state, All()), hn::NegMulAdd(z, n, n));
            store_values(h, state, All());
            put_hidden<Element>(tile, at, k, h, part);
            if (tile.gates == nullptr) return;
            float* const gates = tile.gates + at.gates + k;
            store_values(r, gates, part);
            store_values(z, gates + tile.K, part);
            store_values(n, gates + 2 * tile.K, part);
            store_values(hidden_n, tile.hidden_n + at.plain + k, part);
        });
    }

    // The slots are n towards src, r, z, n towards the hidden state.
    template <class Element>
    static HWY_INLINE void backward_row(const GateTile& tile, std::int64_t row) {
        const RowAt at = row_at(tile, row, kGates);
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            float* const diff_hidden = tile.diff_hidden + at.panel + k;
            const FloatVector dh = diff_hidden_at<Element>(tile, at, k, part);
            const float* const gates = tile.gates + at.gates + k;
            fetch_next(tile, gates, kGates);
            fetch_next_row(tile, tile.hidden_n + at.plain + k);
            const FloatVector r = load_values(gates, part);
            const FloatVector z = load_values(gates + tile.K, part);
            const FloatVector n = load_values(gates + 2 * tile.K, part);
            const FloatVector hidden_n = load_values(tile.hidden_n + at.plain + k, part);
            const FloatVector last =
                load_values(static_cast<const Element*>(tile.hidden) + at.panel + k, All());
            const auto put = [&](std::int64_t slot, FloatVector delta)
                                 HWY_ATTR { put_delta<Element>(tile, at, k, slot, delta); };
            const FloatVector dn = hn::Mul(hn::NegMulAdd(dh, z, dh), tanh_slope(n));
            put(0, dn);
            put(1, hn::Mul(hn::Mul(dn, hidden_n), logistic_slope(r)));
            put(2, hn::Mul(hn::Mul(dh, hn::Sub(last, n)), logistic_slope(z)));
            put(3, hn::Mul(dn, r));
            store_values(hn::Mul(dh, z), diff_hidden, All());
        });
    }
};

// Rows of a tile, one after the other: those that take part in the step, and those that keep their
// state through it. `Cell` has forward_row and backward_row for the first, and its gates.
template <class Element>
void keep_row(const GateTile& tile, std::int64_t row, std::int64_t gates) {
    const std::int64_t panel = row * tile.width;
    const std::int64_t plain = row * tile.K;
    std::copy_n(static_cast<const Element*>(tile.hidden) + panel, tile.width,
                static_cast<Element*>(tile.next_hidden) + panel);
    std::fill_n(static_cast<Element*>(tile.dst) + plain, tile.channels, Element{0});
    if (tile.gates == nullptr) return;
    for (std::int64_t gate = 0; gate < gates; ++gate) {
        std::fill_n(tile.gates + (row * gates + gate) * tile.K, tile.channels, 0.0F);
    }
    if (tile.cells != nullptr) std::copy_n(tile.state + panel, tile.channels, tile.cells + plain);
    if (tile.hidden_n != nullptr) std::fill_n(tile.hidden_n + plain, tile.channels, 0.0F);
}

template <class Element>
void pass_row(const GateTile& tile, std::int64_t row) {
    const std::int64_t panel = row * tile.width;
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
        std::fill_n(static_cast<Element*>(tile.deltas) + slot * tile.slot_stride + panel,
                    tile.width, Element{0});
    }
    if (tile.product == nullptr) return;
    for (std::int64_t k = panel; k < panel + tile.width; ++k) {
        tile.diff_hidden[k] += tile.product[k];
    }
}

template <class Cell, class Element>
void forward_rows(const GateTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        if (tile.valid.at(row)) {
            Cell::template forward_row<Element>(tile, row);
        } else {
            keep_row<Element>(tile, row, Cell::kGates);
        }
    }
}

template <class Cell, class Element>
void backward_rows(const GateTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        if (tile.valid.at(row)) {
            Cell::template backward_row<Element>(tile, row);
        } else {
            pass_row<Element>(tile, row);
        }
    }
}

template <class Cell>
GateFunctions functions_of(DType dtype) {
    if (dtype == DType::f32) return {forward_rows<Cell, float>, backward_rows<Cell, float>};
    return {forward_rows<Cell, std::uint16_t>, backward_rows<Cell, std::uint16_t>};
}

GateFunctions gates_of(RnnCell cell, DType dtype) {
    return cell == RnnCell::lstm ? functions_of<LstmCell>(dtype) : functions_of<GruCell>(dtype);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

GateFunctions gate_functions(Isa isa, RnnCell cell, DType dtype) {
    return DLPRIM_FOR_ISA(isa, gates_of)(cell, dtype);
}

}  // namespace dlprim
#endif
