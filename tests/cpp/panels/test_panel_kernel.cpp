// Products with panels of weights, on every ISA level of the machine, against plain loops: operands
// end where pages do that may not be touched, apart from what is fetched ahead, which never faults.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "draw.h"
#include "guarded_memory.h"
#include "jit/element_reference.h"
#include "panels/panel_kernel.h"
#include "panels/panel_packing.h"
#include "panels/panel_reference.h"

namespace dlprim::testing {
namespace {

constexpr std::array kLevels = {Isa::avx2, Isa::avx2_vnni, Isa::avx512, Isa::avx512_vnni,
                                Isa::avx512_bf16};

// Bytes that end, or begin, at a page that faults.
class Fenced {
public:
    Fenced(std::int64_t bytes, Fence fence)
        : memory_((bytes + 3) / 4, fence),
          at_(reinterpret_cast<char*>(memory_.data()) +
              (fence == Fence::after ? (bytes + 3) / 4 * 4 - bytes : 0)) {}

    char* data() const { return at_; }
    void protect() { memory_.make_read_only(); }

private:
    GuardedMemory memory_;
    char* at_;
};

struct Case {
    PanelSpec spec;
    std::int64_t groups = 1;
    Fence fence = Fence::after;
};

PanelFormat draw_format(Draw& draw) {
    PanelFormat format{.bits = draw.one_of(std::array<std::uint8_t, 3>{4, 8, 16}),
                       .group = draw.one_of(std::array<std::uint8_t, 3>{32, 64, 128}),
                       .zero_points = draw.once_in(3),
                       .scales = draw.one_of(std::array{DType::bf16, DType::f16, DType::f32})};
    if (format.bits == 16) format = {.bits = 16};
    return format;
}

Case draw_case(Draw& draw, Isa isa) {
    Case it{.spec = {.format = draw_format(draw),
                     .x_bits = draw.one_of(std::array<std::uint8_t, 2>{15, 8}),
                     .columns = static_cast<std::uint8_t>(draw.once_in(2) ? 64 : draw.from(1, 63)),
                     .bias = draw.once_in(2),
                     .activation = draw.once_in(3) ? Activation::gelu : Activation::none,
                     .src = draw.once_in(3) ? DType::bf16 : DType::f32},
            .groups = draw.from(1, 5),
            .fence = draw.once_in(2) ? Fence::after : Fence::before};
    const int most = most_panel_rows(it.spec.format, it.spec.x_bits, isa);
    it.spec.rows = static_cast<std::uint8_t>(draw.from(1, most));
    return it;
}

void fill_panel(const Case& it, Draw& draw, char* panel) {
    const std::int64_t C = it.groups * it.spec.format.group;
    std::vector<float> weights(static_cast<std::size_t>(C * kPanelColumns));
    for (float& weight : weights) weight = draw.normal();
    CHECK(
        pack_panel(it.spec.format, PlainWeights{.data = weights.data(), .row = C, .C = C}, panel));
}

// As the kernel of the ISA has it, each number compared with that of plain loops.
void fill_records(const Case& it, Isa isa, Draw& draw, char* records) {
    const RecordSpec spec = record_spec(it.spec.format, it.spec.x_bits, it.spec.src, isa);
    const std::int64_t group = spec.record.group, step = it.spec.rows * spec.record.bytes();
    for (std::int64_t row = 0; row < it.spec.rows; ++row) {
        const std::int64_t bytes = it.groups * group * size_of(it.spec.src);
        const Fenced src(bytes, it.fence);
        for (std::int64_t k = 0; k < it.groups * group; ++k) {
            const float value = draw.once_in(5) ? 100 * draw.normal() : draw.normal();
            set_element(it.spec.src, src.data(), k, row % 3 == 2 && k < group ? 0 : value);
        }
        const RecordArgs args{.src = src.data(),
                              .records = records + row * spec.record.bytes(),
                              .record_step = step,
                              .groups = it.groups};
        (*record_kernel(spec, isa))(args);
        std::vector<char> plain(static_cast<std::size_t>(it.groups * spec.record.bytes()));
        RecordArgs same = args;
        same.records = plain.data();
        same.record_step = spec.record.bytes();
        reference_records(spec, same);
        bool equal = true;
        for (std::int64_t g = 0; g < it.groups; ++g) {
            equal &= std::memcmp(plain.data() + g * spec.record.bytes(), args.records + g * step,
                                 static_cast<std::size_t>(spec.record.bytes())) == 0;
        }
        CHECK(equal);
    }
}

void check(const Case& it, Isa isa, Draw& draw) {
    const RowRecord record = record_spec(it.spec.format, it.spec.x_bits, it.spec.src, isa).record;
    const std::int64_t element = size_of(it.spec.src), columns = it.spec.columns;
    Fenced weights(it.groups * it.spec.format.group_bytes(), it.fence);
    Fenced records(it.groups * it.spec.rows * record.bytes(), it.fence);
    const Fenced sums(it.spec.rows * kPanelColumns * kFloat, it.fence);
    const Fenced bias(columns * kFloat, it.fence);
    const std::int64_t dst_row = columns * element, dst_bytes = it.spec.rows * dst_row;
    const Fenced dst(dst_bytes, it.fence), expected(dst_bytes, it.fence);
    fill_panel(it, draw, weights.data());
    fill_records(it, isa, draw, records.data());
    weights.protect();
    records.protect();
    for (std::int64_t i = 0; i < columns; ++i) set_element(DType::f32, bias.data(), i, 1);
    PanelArgs args{.weights = weights.data(),
                   .records = records.data(),
                   .sums = reinterpret_cast<float*>(sums.data()),
                   .bias = reinterpret_cast<const float*>(bias.data()),
                   .dst = dst.data(),
                   .dst_row = dst_row,
                   .groups = it.groups};
    (*panel_kernel(it.spec, isa))(args);
    args.dst = expected.data();
    reference_panel(it.spec, record, args);
    float largest = 1, error = 0;
    for (std::int64_t i = 0; i < it.spec.rows * columns; ++i) {
        const float value = element_at(it.spec.src, expected.data(), i);
        largest = std::max(largest, std::abs(value));
        error = std::max(error, std::abs(element_at(it.spec.src, dst.data(), i) - value));
    }
    CHECK(error <= largest * (it.spec.src == DType::bf16 ? 0x1p-7F : 1e-5F));
}

TEST_CASE("kernels on panels compute what plain loops do, on every level") {
    for (const Isa isa : kLevels) {
        if (usable_isa(isa) != isa) continue;
        Draw draw(1);
        for (unsigned i = 0; i < cases(150); ++i) {
            const Case it = draw_case(draw, isa);
            CAPTURE(PanelKernel(it.spec, isa).name());
            check(it, isa, draw);
        }
    }
}

TEST_CASE("a kernel for most rows has its registers") {
    for (const Isa isa : kLevels) {
        for (const int bits : {4, 8, 16}) {
            for (const int x_bits : {8, 15}) {
                PanelSpec spec{.format = {.bits = static_cast<std::uint8_t>(bits)},
                               .x_bits = static_cast<std::uint8_t>(x_bits)};
                if (bits == 4) spec.format.group = 128;
                const int most = most_panel_rows(spec.format, x_bits, isa);
                for (int rows = 1; rows <= most; ++rows) {
                    spec.rows = static_cast<std::uint8_t>(rows);
                    const PanelPlan plan = panel_plan(spec, isa);
                    CHECK(plan.width >= 1);
                    CHECK(plan.vectors % plan.width == 0);
                    CHECK(kFirstSum + rows * plan.width * plan.per_sum <=
                          vector_file(isa).registers);
                }
            }
        }
    }
}

}  // namespace
}  // namespace dlprim::testing
