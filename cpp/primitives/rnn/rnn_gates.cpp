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

// A vector of channels of one row of a tile, where `part` says which of its lanes there are.
template <class Element, class Part>
struct TileVector {
    const GateTile& tile;
    std::int64_t panel;  // its offsets in panels, in plain tensors and in gates
    std::int64_t plain;
    std::int64_t gates;
    std::int64_t k;  // its first channel
    Part part;

    HWY_INLINE FloatVector sum(std::int64_t slot) const {
        const float* const it = tile.sums + panel + slot * tile.slot_stride;
        hwy::Prefetch(it + tile.next_sums);
        return load_values(it, part);
    }

    HWY_INLINE void put_hidden(FloatVector h) const {
        store_values(h, static_cast<Element*>(tile.next_hidden) + panel, All());
        store_values(h, static_cast<Element*>(tile.dst) + plain, part);
    }

    HWY_INLINE FloatVector last_hidden() const {
        return load_values(static_cast<const Element*>(tile.hidden) + panel, All());
    }

    HWY_INLINE FloatVector gate(std::int64_t index) const {
        return load_values(tile.gates + gates + index * tile.K, part);
    }
    HWY_INLINE void put_gate(std::int64_t index, FloatVector value) const {
        store_values(value, tile.gates + gates + index * tile.K, part);
    }

    // The gradient of what reaches the hidden state after the step.
    HWY_INLINE FloatVector diff_hidden() const {
        const auto* const diff_dst = static_cast<const Element*>(tile.diff_dst);
        const FloatVector past = load_values(tile.diff_hidden + panel, All());
        const FloatVector sum = hn::Add(past, load_values(diff_dst + plain, part));
        if (tile.product == nullptr) return sum;
        return hn::Add(sum, load_values(tile.product + panel, All()));
    }

    // The gradient of a pre-activation, to its slot and its bias.
    HWY_INLINE void put_delta(std::int64_t slot, FloatVector delta) const {
        auto* const deltas = static_cast<Element*>(tile.deltas) + slot * tile.slot_stride;
        store_values(delta, deltas + panel, All());
        float* const sum = tile.diff_bias + slot * tile.bias_stride + k;
        store_values(hn::Add(load_values(sum, All()), delta), sum, All());
    }

    // A line of each gate and of a plain tensor that the next tile will read.
    HWY_INLINE void fetch_next(std::int64_t gate_count, const float* plain_rows) const {
        const std::int64_t ahead = tile.next.rows * gate_count * tile.K + tile.next.channels;
        for (std::int64_t gate = 0; gate < gate_count; ++gate) {
            hwy::Prefetch(tile.gates + gates + ahead + gate * tile.K);
        }
        hwy::Prefetch(plain_rows + plain + tile.next.rows * tile.K + tile.next.channels);
    }
};

// x (1 - x), the derivative of sigmoid by its result.
HWY_INLINE FloatVector logistic_slope(FloatVector x) { return hn::NegMulAdd(x, x, x); }
HWY_INLINE FloatVector tanh_slope(FloatVector x) { return hn::NegMulAdd(x, x, number(1)); }

struct LstmCell {
    static constexpr std::int64_t kGates = 4;

    // i, f, g and o in turn.
    template <class Vector>
    static HWY_INLINE void forward(const Vector& at) {
        const GateTile& tile = at.tile;
        const FloatVector i = sigmoid(at.sum(0));
        const FloatVector f = sigmoid(at.sum(1));
        const FloatVector g = tanh(at.sum(2));
        const FloatVector o = sigmoid(at.sum(3));
        float* const state = tile.state + at.panel;
        const FloatVector c = hn::MulAdd(f, load_values(state, All()), hn::Mul(i, g));
        store_values(c, state, All());
        at.put_hidden(hn::Mul(o, tanh(c)));
        if (tile.gates == nullptr) return;
        at.put_gate(0, i);
        at.put_gate(1, f);
        at.put_gate(2, g);
        at.put_gate(3, o);
        store_values(c, tile.cells + at.plain, at.part);
    }

    template <class Vector>
    static HWY_INLINE void backward(const Vector& at) {
        const GateTile& tile = at.tile;
        float* const diff_cells = tile.diff_cells + at.panel;
        const FloatVector dh = at.diff_hidden();
        at.fetch_next(kGates, tile.cells);
        const FloatVector i = at.gate(0);
        const FloatVector f = at.gate(1);
        const FloatVector g = at.gate(2);
        const FloatVector o = at.gate(3);
        const FloatVector c = tanh(load_values(tile.cells + at.plain, at.part));
        const FloatVector last = tile.last_cells == nullptr
                                     ? hn::Zero(Floats())
                                     : load_values(tile.last_cells + at.plain, at.part);
        const FloatVector dc =
            hn::MulAdd(hn::Mul(dh, o), tanh_slope(c), load_values(diff_cells, All()));
        at.put_delta(0, hn::Mul(hn::Mul(dc, g), logistic_slope(i)));
        at.put_delta(1, hn::Mul(hn::Mul(dc, last), logistic_slope(f)));
        at.put_delta(2, hn::Mul(hn::Mul(dc, i), tanh_slope(g)));
        at.put_delta(3, hn::Mul(hn::Mul(dh, c), logistic_slope(o)));
        store_values(hn::Mul(dc, f), diff_cells, All());
        store_values(hn::Zero(Floats()), tile.diff_hidden + at.panel, All());
    }
};

struct GruCell {
    static constexpr std::int64_t kGates = 3;

    // r, z and n in turn.
    template <class Vector>
    static HWY_INLINE void forward(const Vector& at) {
        const GateTile& tile = at.tile;
        const FloatVector r = sigmoid(at.sum(0));
        const FloatVector z = sigmoid(at.sum(1));
        const FloatVector hidden_n =
            hn::Add(at.sum(3), load_values(tile.hidden_bias + at.k, at.part));
        const FloatVector n = tanh(hn::MulAdd(r, hidden_n, at.sum(2)));
        float* const state = tile.state + at.panel;
        const FloatVector h = hn::MulAdd(z, load_values(state, All()), hn::NegMulAdd(z, n, n));
        store_values(h, state, All());
        at.put_hidden(h);
        if (tile.gates == nullptr) return;
        at.put_gate(0, r);
        at.put_gate(1, z);
        at.put_gate(2, n);
        store_values(hidden_n, tile.hidden_n + at.plain, at.part);
    }

    // The slots are n towards src, r, z, n towards the hidden state.
    template <class Vector>
    static HWY_INLINE void backward(const Vector& at) {
        const GateTile& tile = at.tile;
        const FloatVector dh = at.diff_hidden();
        at.fetch_next(kGates, tile.hidden_n);
        const FloatVector r = at.gate(0);
        const FloatVector z = at.gate(1);
        const FloatVector n = at.gate(2);
        const FloatVector hidden_n = load_values(tile.hidden_n + at.plain, at.part);
        const FloatVector dn = hn::Mul(hn::NegMulAdd(dh, z, dh), tanh_slope(n));
        at.put_delta(0, dn);
        at.put_delta(1, hn::Mul(hn::Mul(dn, hidden_n), logistic_slope(r)));
        at.put_delta(2, hn::Mul(hn::Mul(dh, hn::Sub(at.last_hidden(), n)), logistic_slope(z)));
        at.put_delta(3, hn::Mul(dn, r));
        store_values(hn::Mul(dh, z), tile.diff_hidden + at.panel, All());
    }
};

// Rows of a tile, one after the other: those that take part in the step, and those that keep their
// state through it. `Cell` has forward and backward for a vector of the first, and its gates.
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

// body(vector) along a row of a tile: All where the vector lies within the channels, else First,
// with a count from 0.
template <class Cell, class Element, class Body>
HWY_INLINE void along_row(const GateTile& tile, std::int64_t row, const Body& body) {
    const auto at = [&](std::int64_t k, auto part) HWY_ATTR {
        return TileVector<Element, decltype(part)>{.tile = tile,
                                                   .panel = row * tile.width + k,
                                                   .plain = row * tile.K + k,
                                                   .gates = row * Cell::kGates * tile.K + k,
                                                   .k = k,
                                                   .part = part};
    };
    std::int64_t k = 0;
    for (; k + kFloatLanes <= tile.channels; k += kFloatLanes) body(at(k, All{}));
    for (; k < tile.width; k += kFloatLanes) {
        body(at(k, First{std::max<std::int64_t>(tile.channels - k, 0)}));
    }
}

template <class Cell, class Element>
void forward_rows(const GateTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        if (tile.valid.at(row)) {
            along_row<Cell, Element>(tile, row,
                                     [](const auto& vector) HWY_ATTR { Cell::forward(vector); });
        } else {
            keep_row<Element>(tile, row, Cell::kGates);
        }
    }
}

template <class Cell, class Element>
void backward_rows(const GateTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        if (tile.valid.at(row)) {
            along_row<Cell, Element>(tile, row,
                                     [](const auto& vector) HWY_ATTR { Cell::backward(vector); });
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
