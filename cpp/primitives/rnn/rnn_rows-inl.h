// What the gates of every recurrent cell share: rows of a tile, the lines that the next tile needs,
// and the ends of the backward pass. (Included again per target, as bfloat16-inl.h.)
#if defined(DLPRIM_PRIMITIVES_RNN_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_RNN_ROWS_INL_H
#undef DLPRIM_PRIMITIVES_RNN_ROWS_INL_H
#else
#define DLPRIM_PRIMITIVES_RNN_ROWS_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "primitives/rnn/rnn_gates.h"
#include "primitives/rnn/rnn_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Offsets of a row in the operands of a tile.
struct RowAt {
    std::int64_t panel;
    std::int64_t plain;
    std::int64_t gates;
};

template <class Tile>
RowAt row_at(const Tile& tile, std::int64_t row, std::int64_t gates) {
    return {row * tile.width, row * tile.K, row * gates * tile.K};
}

// The gradient of what reaches the hidden state after the step.
template <class Element, class Part>
HWY_INLINE FloatVector diff_hidden_at(const DiffGateTile& tile, const RowAt& at, std::int64_t k,
                                      Part part) {
    const auto* const diff_dst = static_cast<const Element*>(tile.diff_dst);
    const FloatVector sum = hn::Add(load_values(tile.diff_hidden + at.panel + k, All()),
                                    load_values(diff_dst + at.plain + k, part));
    if (tile.product == nullptr) return sum;
    return hn::Add(sum, load_values(tile.product + at.panel + k, All()));
}

// The gradient of a pre-activation, to its slot and its bias.
struct DeltaAt {
    std::int64_t panel;  // of the row
    std::int64_t k;
};

template <class Element>
HWY_INLINE void put_delta(const DiffGateTile& tile, std::int64_t slot, DeltaAt at,
                          FloatVector delta) {
    auto* const deltas = static_cast<Element*>(tile.deltas) + slot * tile.slot_stride;
    store_values(delta, deltas + at.panel + at.k, All());
    float* const sum = tile.diff_bias + slot * tile.bias_stride + at.k;
    store_values(hn::Add(load_values(sum, All()), delta), sum, All());
}

// A line of each gate and of other rows that the next tile will read.
template <class Tile>
HWY_INLINE void fetch_next(const Tile& tile, const float* gates, std::int64_t gate_count) {
    const std::int64_t ahead = tile.next.rows * gate_count * tile.K + tile.next.channels;
    for (std::int64_t gate = 0; gate < gate_count; ++gate) {
        hwy::Prefetch(gates + ahead + gate * tile.K);
    }
}

template <class Tile, class Element>
HWY_INLINE void fetch_next_row(const Tile& tile, const Element* row) {
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
void pass_row(const DiffGateTile& tile, std::int64_t row) {
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
void backward_rows(const DiffGateTile& tile) {
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

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
