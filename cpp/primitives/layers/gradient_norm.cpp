#include "primitives/layers/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

constexpr std::int64_t kPartElements = 4096;  // that are summed in float32
constexpr std::int64_t kTaskParts = 8;
constexpr double kTiny = 1e-6;  // added to the norm, as PyTorch does

RowSpec sum_of_squares() {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    row.store_per_row(sum(x * x));
    return row.spec();
}

}  // namespace

GradientNorm::GradientNorm(std::span<const std::int64_t> counts)
    : counts_(counts.begin(), counts.end()), kernel_(row_kernel(sum_of_squares())) {
    for (const std::int64_t count : counts_) {
        first_part_.push_back(first_part_.back() + Blocks{count, kPartElements}.count());
    }
}

double GradientNorm::run(const float* const* gradients) const {
    const std::int64_t parts = first_part_.back();
    const WorkspacePool::Lease own(WorkspacePool::lasting(),
                                   parts * static_cast<std::int64_t>(sizeof(float)));
    auto* const sums = reinterpret_cast<float*>(own.data());
    const Blocks tasks{parts, kTaskParts};
    const auto add_part = [&](std::int64_t part) {
        const auto after = std::upper_bound(first_part_.begin(), first_part_.end(), part);
        const auto array = static_cast<std::size_t>(after - first_part_.begin()) - 1;
        const Range range = Blocks{counts_[array], kPartElements}.at(part - first_part_[array]);
        RowArgs args;
        args.rows = 1;
        args.columns = range.size();
        args.operands[0] = {const_cast<float*>(gradients[array] + range.begin), 0};
        args.operands[1] = {sums + part, 0};
        (*kernel_)(args);
    };
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        for (std::int64_t part = range.begin; part < range.end; ++part) add_part(part);
    });
    double total = 0;
    for (std::int64_t part = 0; part < parts; ++part) total += static_cast<double>(sums[part]);
    return std::sqrt(total);
}

float clipping_factor(double norm, double limit) {
    const double factor = limit / (norm + kTiny);
    return factor >= 1 ? 1.0F : static_cast<float>(factor);
}

}  // namespace dlprim
