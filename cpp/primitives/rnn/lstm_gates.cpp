// Compiled once per target, as per_isa.h describes.
#include <cstdint>

#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/rnn/lstm_gates.cpp"
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
            const FloatLanes d;
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
                                         ? hn::Zero(d)
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
            store_values(hn::Zero(d), diff_hidden, All());
        });
    }
};

GateFunctions functions(DType dtype) { return functions_of<LstmCell>(dtype); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

GateFunctions lstm_functions(Isa isa, DType dtype) { return DLPRIM_FOR_ISA(isa, functions)(dtype); }

}  // namespace dlprim
#endif
