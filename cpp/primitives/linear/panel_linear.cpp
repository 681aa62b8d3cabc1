#include "primitives/linear/panel_linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "panels/panel_kernel.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr int kMostGroup = 128;
constexpr int kMostRows = 16;
// Numbers of rows that are rounded by one thread: less than the start of a loop takes.
constexpr std::int64_t kFewNumbers = 1 << 15;

}  // namespace

// Of all rows, in blocks of those that one call takes: in each, group by group, a record of each
// row.
struct PanelLinear::Records {
    Records(const PanelLinear& it, std::int64_t N, DType dtype)
        : spec(record_spec(it.format_, it.x_bits_, dtype, usable_isa())),
          groups(it.format_.groups(it.C_)),
          blocks{N, equal_step(N, most_panel_rows(it.format_, it.x_bits_, usable_isa()), 1)} {}

    std::int64_t bytes_per_row() const { return groups * spec.record.bytes(); }
    std::int64_t bytes() const { return blocks.extent * bytes_per_row(); }
    const char* of_block(std::int64_t block) const {
        return data + blocks.at(block).begin * bytes_per_row();
    }

    RecordSpec spec;
    std::int64_t groups;
    Blocks blocks;
    char* data = nullptr;
};

int PanelLinear::columns_of(std::int64_t panel) const {
    return static_cast<int>(std::min<std::int64_t>(kPanelColumns, K_ - panel * kPanelColumns));
}

void PanelLinear::make_records(const PanelLinearForward& it, const Records& to) const {
    const auto kernel = record_kernel(to.spec, usable_isa());
    const std::int64_t element = size_of(it.dtype), record = to.spec.record.bytes();
    const std::int64_t whole = C_ / format_.group, rest = C_ % format_.group;
    const auto round_row = [&](std::int64_t n) {
        const Range block = to.blocks.at(n / to.blocks.block);
        RecordArgs args{
            .src = static_cast<const char*>(it.src) + n * C_ * element,
            .records = to.data + block.begin * to.bytes_per_row() + (n - block.begin) * record,
            .record_step = block.size() * record,
            .groups = whole};
        if (whole > 0) (*kernel)(args);
        if (rest == 0) return;
        alignas(kCacheLineBytes) std::array<char, kMostGroup * kFloat> padded = {};
        std::memcpy(padded.data(), args.src + whole * format_.group * element,
                    static_cast<std::size_t>(rest * element));
        args.src = padded.data();
        args.records += whole * args.record_step;
        args.groups = 1;
        (*kernel)(args);
    };
    if (it.N * C_ >= kFewNumbers) return parallel_for(it.N, round_row);
    for (std::int64_t n = 0; n < it.N; ++n) round_row(n);
}

void PanelLinear::multiply(const PanelLinearForward& it, const Records& records) const {
    const Isa isa = usable_isa();
    const std::int64_t element = size_of(it.dtype);
    const std::int64_t panels = weight_panels(K_);
    const auto kernel_for = [&](std::int64_t rows, std::int64_t panel) {
        return panel_kernel({.format = format_,
                             .x_bits = static_cast<std::uint8_t>(x_bits_),
                             .rows = static_cast<std::uint8_t>(rows),
                             .columns = static_cast<std::uint8_t>(columns_of(panel)),
                             .bias = it.bias != nullptr,
                             .activation = it.activation,
                             .src = it.dtype},
                            isa);
    };
    // Blocks of rows but the last are of one height, and panels but the last of one width.
    using Kernel = decltype(kernel_for(1, 0));
    std::array<std::array<Kernel, 2>, 2> kernels;
    const std::int64_t last_block = records.blocks.count() - 1;
    for (const std::int64_t block : {std::int64_t{0}, last_block}) {
        for (const std::int64_t panel : {std::int64_t{0}, panels - 1}) {
            kernels[block == last_block][panel == panels - 1] =
                kernel_for(records.blocks.at(block).size(), panel);
        }
    }
    parallel_for(panels, [&](std::int64_t panel) {
        alignas(kCacheLineBytes) std::array<float, kMostRows * kPanelColumns> sums;
        for (std::int64_t block = 0; block <= last_block; ++block) {
            const std::int64_t first = records.blocks.at(block).begin;
            const std::int64_t column = panel * kPanelColumns;
            (*kernels[block == last_block][panel == panels - 1])(
                {.weights = it.weights + panel * format_.panel_bytes(C_),
                 .records = records.of_block(block),
                 .sums = sums.data(),
                 .bias = it.bias == nullptr ? nullptr : it.bias + column,
                 .dst = static_cast<char*>(it.dst) + (first * K_ + column) * element,
                 .dst_row = K_ * element,
                 .groups = records.groups});
        }
    });
}

void PanelLinear::forward(const PanelLinearForward& it) const {
    if (it.N == 0 || K_ == 0) return;
    const WorkOf work(flops(it.N), static_cast<double>(weight_bytes()));
    Records records(*this, it.N, it.dtype);
    const WorkspacePool::Lease scratch(*workspaces_, records.bytes());
    records.data = scratch.data();
    make_records(it, records);
    multiply(it, records);
}

bool PanelLinear::pack(const PlainWeights& weights, char* to) const {
    std::atomic<bool> finite = true;
    parallel_for(weight_panels(K_), [&](std::int64_t panel) {
        PlainWeights it = weights;
        it.data =
            static_cast<const char*>(it.data) + panel * kPanelColumns * it.row * size_of(it.dtype);
        it.columns = columns_of(panel);
        if (!pack_panel(format_, it, to + panel * format_.panel_bytes(C_))) finite = false;
    });
    return finite;
}

void PanelLinear::pack(const GivenWeights& weights, char* to) const {
    parallel_for(weight_panels(K_), [&](std::int64_t panel) {
        GivenWeights it = weights;
        const std::int64_t first = panel * kPanelColumns, groups = format_.groups(C_);
        it.weights += first * C_;
        it.scales = static_cast<const char*>(it.scales) + first * groups * size_of(format_.scales);
        if (it.zero_points != nullptr) it.zero_points += first * groups;
        it.columns = columns_of(panel);
        pack_panel(format_, it, to + panel * format_.panel_bytes(C_));
    });
}

void PanelLinear::unpack(const char* weights, float* to) const {
    parallel_for(weight_panels(K_), [&](std::int64_t panel) {
        const PlainWeights shape{.row = C_, .C = C_, .columns = columns_of(panel)};
        unpack_panel(format_, weights + panel * format_.panel_bytes(C_), shape,
                     to + panel * kPanelColumns * C_);
    });
}

}  // namespace dlprim
