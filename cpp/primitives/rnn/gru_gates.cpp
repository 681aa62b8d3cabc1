// Compiled once per target, as per_isa.h describes.
#include <cstdint>

#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/rnn/gru_gates.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/rnn/rnn_rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

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
            const FloatVector tanh_slope = hn::NegMulAdd(n, n, number(1));
            const FloatVector dn = hn::Mul(hn::NegMulAdd(dh, z, dh), tanh_slope);
            put(0, dn);
            put(1, hn::Mul(hn::Mul(dn, hidden_n), hn::NegMulAdd(r, r, r)));
            put(2, hn::Mul(hn::Mul(dh, hn::Sub(last, n)), hn::NegMulAdd(z, z, z)));
            put(3, hn::Mul(dn, r));
            store_values(hn::Mul(dh, z), diff_hidden, All());
        });
    }
};

GateFunctions functions(DType dtype) { return functions_of<GruCell>(dtype); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

GateFunctions gru_functions(Isa isa, DType dtype) { return DLPRIM_FOR_ISA(isa, functions)(dtype); }

GateFunctions gate_functions(Isa isa, RnnCell cell, DType dtype) {
    return cell == RnnCell::lstm ? lstm_functions(isa, dtype) : gru_functions(isa, dtype);
}

}  // namespace dlprim
#endif
