#include "panels/panel_plan.h"

#include <algorithm>

namespace dlprim {
namespace {

// Code for more rows is longer than what a core keeps decoded, and gains nothing.
constexpr int kMostRows = 12;

PanelPlan without_width(const PanelSpec& spec, Isa isa) {
    PanelPlan plan{.spec = spec,
                   .isa = isa,
                   .record = {.method = panel_method(spec.format, spec.src, isa),
                              .group = spec.format.group,
                              .x_bits = spec.x_bits}};
    plan.lanes = std::max<int>(vector_file(isa).bytes / static_cast<int>(kFloat), 1);
    plan.vectors = kPanelColumns / plan.lanes;
    plan.has_total = plan.record.method == PanelMethod::pairs && spec.format.group > kPieceWeights;
    plan.per_sum = plan.record.parts() + (plan.has_total ? 1 : 0);
    return plan;
}

int free_registers(Isa isa) { return vector_file(isa).registers - kFirstSum; }

}  // namespace

PanelMethod panel_method(const PanelFormat& format, DType src, Isa isa) {
    if (format.bits == 16) {
        const bool has_pairs = src == DType::bf16 && isa >= Isa::avx512_bf16;
        return has_pairs ? PanelMethod::halves : PanelMethod::floats;
    }
    if (multiplies_bytes(isa)) return PanelMethod::dots;
    return format.bits == 4 && isa != Isa::scalar ? PanelMethod::pairs : PanelMethod::words;
}

PanelPlan panel_plan(const PanelSpec& spec, Isa isa) {
    PanelPlan plan = without_width(spec, isa);
    if (isa == Isa::scalar) return plan;
    const int most = free_registers(isa) / (spec.rows * plan.per_sum);
    plan.width = plan.vectors;
    while (plan.width > 1 && plan.width > most) plan.width /= 2;
    return plan;
}

int most_panel_rows(const PanelFormat& format, int x_bits, Isa isa) {
    PanelSpec spec{.format = format, .x_bits = static_cast<std::uint8_t>(x_bits)};
    if (isa == Isa::scalar) return kMostRows;
    return std::min(kMostRows, free_registers(isa) / without_width(spec, isa).per_sum);
}

}  // namespace dlprim
