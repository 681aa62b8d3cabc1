#include "primitives/layers/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "jit/element_reference.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaskElements = 32 * 1024;

// Of every row its highest logit, the sum of all powers beside that, and the gradient as if the
// target were no class.
RowSpec program_of(DType dtype, bool gradient) {
    RowBuilder row;
    const RowValue x = row.tensor(dtype), scale = row.scalar();
    const RowValue top = highest(x);
    const RowValue power = exp(x - top);
    const RowValue powers = sum(power);
    row.store_per_row(top);
    row.store_per_row(powers);
    if (gradient) row.store(dtype, power * (scale / powers));
    return row.spec();
}

class Loss {
public:
    Loss(const SoftmaxCrossEntropy& problem, float scale)
        : it_(problem),
          scale_(scale),
          size_(size_of(problem.dtype)),
          kernel_(row_kernel(program_of(problem.dtype, problem.diff_logits != nullptr))),
          tops_(static_cast<std::size_t>(problem.rows)),
          powers_(static_cast<std::size_t>(problem.rows)) {}

    void run(Range rows) {
        const std::int64_t stride = it_.classes * size_;
        // Logits of targets, which the gradient may take the place of.
        std::vector<float> at_target;
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t target = it_.targets[row];
            at_target.push_back(target == it_.ignored ? 0
                                                      : element_at(it_.dtype, it_.logits,
                                                                   row * it_.classes + target));
        }
        const WorkspacePool::Lease scratch(
            WorkspacePool::lasting(), kernel_->scratch_floats(it_.classes) * size_of(DType::f32));
        RowArgs args{.rows = rows.size(),
                     .columns = it_.classes,
                     .scratch = reinterpret_cast<float*>(scratch.data())};
        const auto row_of = [&](const void* array, std::int64_t bytes) {
            auto* const begin = static_cast<char*>(const_cast<void*>(array));
            return RowArgs::Operand{begin + rows.begin * bytes, bytes};
        };
        args.operands[0] = row_of(it_.logits, stride);
        args.operands[1] = {&scale_, 0};
        args.operands[2] = row_of(tops_.data(), size_of(DType::f32));
        args.operands[3] = row_of(powers_.data(), size_of(DType::f32));
        if (it_.diff_logits != nullptr) args.operands[4] = row_of(it_.diff_logits, stride);
        (*kernel_)(args);
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            finish(row, at_target[static_cast<std::size_t>(row - rows.begin)]);
        }
    }

    double sum() const {
        double sum = 0;
        for (const float loss : tops_) sum += loss;
        return sum;
    }

private:
    // The target's element of the gradient; the loss takes the place of the highest logit.
    void finish(std::int64_t row, float at_target) {
        float& loss = tops_[static_cast<std::size_t>(row)];
        const float powers = powers_[static_cast<std::size_t>(row)];
        const std::int64_t target = it_.targets[row];
        const bool counts = target != it_.ignored;
        const float top = loss;
        loss = counts ? std::log(powers) + top - at_target : 0;
        if (it_.diff_logits == nullptr) return;
        auto* const gradient = static_cast<char*>(it_.diff_logits) + row * it_.classes * size_;
        if (counts) {
            const float share = (std::exp(at_target - top) - powers) * (scale_ / powers);
            set_element(it_.dtype, gradient, target, share);
        } else {
            std::fill_n(gradient, it_.classes * size_, '\0');
        }
    }

    const SoftmaxCrossEntropy& it_;
    float scale_;
    std::int64_t size_;
    std::shared_ptr<const RowKernel> kernel_;
    std::vector<float> tops_;
    std::vector<float> powers_;
};

}  // namespace

double softmax_cross_entropy(const SoftmaxCrossEntropy& problem) {
    const auto counted =
        problem.rows - std::count(problem.targets, problem.targets + problem.rows, problem.ignored);
    Loss loss(problem,
              static_cast<float>(1.0 / static_cast<double>(std::max<std::int64_t>(counted, 1))));
    const Blocks tasks{problem.rows, std::max<std::int64_t>(kTaskElements / problem.classes, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) { loss.run(tasks.at(task)); });
    return loss.sum() / static_cast<double>(counted);  // 0 / 0 where nothing counts
}

}  // namespace dlprim
