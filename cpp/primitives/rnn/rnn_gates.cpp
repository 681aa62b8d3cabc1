// Compiled once per target, as per_isa.h describes.
#include "primitives/rnn/rnn_gates.h"

#include <cstdint>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/rnn/rnn_gates.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/rnn/rnn_rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// x (1 - x), the derivative of sigmoid by its result.
HWY_INLINE FloatVector logistic_slope(FloatVector x) { return hn::NegMulAdd(x, x, x); }
HWY_INLINE FloatVector tanh_slope(FloatVector x) { return hn::NegMulAdd(x, x, number(1)); }

struct LstmCell {
    static constexpr std::int64_t kGates = 4;

    // i, f, g and o in turn.
    template <class Element>
    static HWY_INLINE void forward_row(const GateTile& tile, std::int64_t row) {
        const RowAt at = row_at(tile, row, kGates);
        const float* const sums = tile.sums + at.panel;
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            const auto input = [&](std::int64_t gate) HWY_ATTR {
                const float* const at_gate = sums + gate * tile.slot_stride + k;
                hwy::Prefetch(at_gate + tile.next_sums);
                return load_values(at_gate, part);
            };
            const FloatVector i = sigmoid(input(0));
            const FloatVector f = sigmoid(input(1));
            const FloatVector g = tanh(input(2));
            const FloatVector o = sigmoid(input(3));
            float* const state = tile.state + at.panel + k;
            const FloatVector c = hn::MulAdd(f, load_values(state, All()), hn::Mul(i, g));
            const FloatVector h = hn::Mul(o, tanh(c));
            store_values(c, state, All());
            store_values(h, static_cast<Element*>(tile.next_hidden) + at.panel + k, All());
            store_values(h, static_cast<Element*>(tile.dst) + at.plain + k, part);
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
    static HWY_INLINE void backward_row(const DiffGateTile& tile, std::int64_t row) {
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
                                 HWY_ATTR { put_delta<Element>(tile, slot, {at.panel, k}, delta); };
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
        const float* const sums = tile.sums + at.panel;
        along_panel(tile.channels, tile.width, [&](std::int64_t k, auto part) HWY_ATTR {
            const auto sum = [&](std::int64_t slot) HWY_ATTR {
                const float* const at_slot = sums + slot * tile.slot_stride + k;
                hwy::Prefetch(at_slot + tile.next_sums);
                return load_values(at_slot, part);
            };
            const FloatVector r = sigmoid(sum(0));
            const FloatVector z = sigmoid(sum(1));
            const FloatVector hidden_n = hn::Add(sum(3), load_values(tile.hidden_bias + k, part));
            const FloatVector n = tanh(hn::MulAdd(r, hidden_n, sum(2)));
            float* const state = tile.state + at.panel + k;
            const FloatVector h = hn::MulAdd(z, load_values(state, All()), hn::NegMulAdd(z, n, n));
            store_values(h, state, All());
            store_values(h, static_cast<Element*>(tile.next_hidden) + at.panel + k, All());
            store_values(h, static_cast<Element*>(tile.dst) + at.plain + k, part);
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
    static HWY_INLINE void backward_row(const DiffGateTile& tile, std::int64_t row) {
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
                                 HWY_ATTR { put_delta<Element>(tile, slot, {at.panel, k}, delta); };
            const FloatVector dn = hn::Mul(hn::NegMulAdd(dh, z, dh), tanh_slope(n));
            put(0, dn);
            put(1, hn::Mul(hn::Mul(dn, hidden_n), logistic_slope(r)));
            put(2, hn::Mul(hn::Mul(dh, hn::Sub(last, n)), logistic_slope(z)));
            put(3, hn::Mul(dn, r));
            store_values(hn::Mul(dh, z), diff_hidden, All());
        });
    }
};

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
