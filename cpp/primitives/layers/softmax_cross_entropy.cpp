#include "primitives/layers/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "jit/element_reference.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kLossTaskElements = 32 * 1024;

// Of every row its highest logit, the sum of all powers beside that, and the gradient as if the
// target were no class; smoothed also the sum of logits beside the highest, by weight.
RowSpec program_of(const SoftmaxCrossEntropy& it) {
    RowBuilder row;
    const RowValue x = row.tensor(it.dtype);
    const RowValue scale = it.weights != nullptr ? row.per_row() : row.scalar();
    const RowValue top = highest(x);
    const RowValue above = x - top;
    const RowValue power = exp(above);
    const RowValue powers = sum(power);
    row.store_per_row(top);
    row.store_per_row(powers);
    RowValue weight = 1.0F;
    if (it.smoothing > 0) {
        if (it.weights != nullptr) weight = row.column();
        row.store_per_row(sum(above * weight));
    }
    if (it.diff_logits == nullptr) return row.spec();
    RowValue shares = power * (scale / powers);
    if (it.smoothing > 0) shares = shares - weight * row.scalar();
    row.store(it.dtype, shares);
    return row.spec();
}

// Factors of a row's loss and of its gradient.
class Weighting {
public:
    explicit Weighting(const SoftmaxCrossEntropy& problem)
        : it_(problem),
          each_(problem.smoothing / static_cast<float>(problem.classes)),
          total_(problem.weights == nullptr
                     ? static_cast<float>(problem.classes)
                     : static_cast<float>(std::accumulate(
                           problem.weights, problem.weights + problem.classes, 0.0))) {
        for (std::int64_t row = 0; row < problem.rows; ++row) {
            const std::int64_t target = problem.targets[row];
            if (target == problem.ignored) continue;
            ++counted_;
            divisor_ += weight(target);
        }
        if (!problem.averages) divisor_ = 1;
        scale_ = counted_ == 0 ? 1.0F : static_cast<float>(1.0 / divisor_);
    }

    float weight(std::int64_t target) const {
        return it_.weights == nullptr ? 1.0F : it_.weights[target];
    }
    // Of -log p[target], and of every w[k] -log p[k].
    float hit(std::int64_t target) const { return (1.0F - it_.smoothing) * weight(target); }
    float each() const { return each_; }
    float total() const { return total_; }
    double divisor() const { return divisor_; }
    float scale() const { return scale_; }
    // Of p in the gradient.
    float share(std::int64_t target) const { return scale_ * (hit(target) + each_ * total_); }

private:
    const SoftmaxCrossEntropy& it_;
    float each_;
    float total_;  // weight of all classes
    std::int64_t counted_ = 0;
    double divisor_ = 0;
    float scale_ = 1;
};

class Loss {
public:
    explicit Loss(const SoftmaxCrossEntropy& problem)
        : it_(problem),
          weighting_(problem),
          scale_(weighting_.scale()),
          taken_(weighting_.scale() * weighting_.each()),
          size_(size_of(problem.dtype)),
          kernel_(row_kernel(program_of(problem))),
          tops_(static_cast<std::size_t>(problem.rows)),
          powers_(tops_.size()),
          shares_(problem.weights != nullptr ? tops_.size() : 0),
          sums_(problem.smoothing > 0 ? tops_.size() : 0) {}

    void run(Range rows) {
        // Logits of targets, which the gradient may take the place of.
        std::vector<float> at_target;
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t target = it_.targets[row];
            const bool counts = target != it_.ignored;
            at_target.push_back(
                counts ? element_at(it_.dtype, it_.logits, row * it_.classes + target) : 0);
            if (!shares_.empty()) shares_[at(row)] = counts ? weighting_.share(target) : 0;
        }
        const WorkspacePool::Lease scratch(
            WorkspacePool::lasting(), kernel_->scratch_floats(it_.classes) * size_of(DType::f32));
        RowArgs args = args_of(rows);
        args.scratch = reinterpret_cast<float*>(scratch.data());
        (*kernel_)(args);
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            finish(row, at_target[at(row - rows.begin)]);
        }
    }

    double result() const {
        double sum = 0;
        for (const float loss : tops_) sum += loss;
        if (it_.losses != nullptr) std::copy(tops_.begin(), tops_.end(), it_.losses);
        const double divisor = weighting_.divisor();
        return divisor == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / divisor;
    }

private:
    static std::size_t at(std::int64_t row) { return static_cast<std::size_t>(row); }

    // In the order in which the program names them.
    RowArgs args_of(Range rows) {
        RowArgs args{.rows = rows.size(), .columns = it_.classes};
        std::size_t count = 0;
        const auto add = [&](const void* array, std::int64_t bytes) {
            auto* const begin = static_cast<char*>(const_cast<void*>(array));
            args.operands.at(count++) = {begin + rows.begin * bytes, bytes};
        };
        const std::int64_t stride = it_.classes * size_, single = size_of(DType::f32);
        add(it_.logits, stride);
        if (shares_.empty()) {
            add(&scale_, 0);
        } else {
            add(shares_.data(), single);
        }
        add(tops_.data(), single);
        add(powers_.data(), single);
        if (!sums_.empty()) {
            if (it_.weights != nullptr) add(it_.weights, 0);
            add(sums_.data(), single);
        }
        if (it_.diff_logits == nullptr) return args;
        if (!sums_.empty()) add(&taken_, 0);
        add(it_.diff_logits, stride);
        return args;
    }

    // The target's element of the gradient; the loss takes the place of the highest logit.
    void finish(std::int64_t row, float at_target) {
        float& loss = tops_[at(row)];
        const float powers = powers_[at(row)];
        const std::int64_t target = it_.targets[row];
        const bool counts = target != it_.ignored;
        const float top = loss;
        loss = counts ? loss_of(row, at_target) : 0;
        if (it_.diff_logits == nullptr) return;
        auto* const gradient = static_cast<char*>(it_.diff_logits) + row * it_.classes * size_;
        if (!counts) {
            std::fill_n(gradient, it_.classes * size_, '\0');
            return;
        }
        const float power = std::exp(at_target - top), scale = weighting_.scale() / powers;
        float share = weighting_.hit(target) * (power - powers) * scale;
        if (!sums_.empty()) {
            const float weight = weighting_.weight(target);
            share += weighting_.each() * (weighting_.total() * power - weight * powers) * scale;
        }
        set_element(it_.dtype, gradient, target, share);
    }

    float loss_of(std::int64_t row, float at_target) const {
        const float log_powers = std::log(powers_[at(row)]);
        const float missed = log_powers + tops_[at(row)] - at_target;
        const float loss = weighting_.hit(it_.targets[row]) * missed;
        if (sums_.empty()) return loss;
        return loss + weighting_.each() * (weighting_.total() * log_powers - sums_[at(row)]);
    }

    const SoftmaxCrossEntropy& it_;
    Weighting weighting_;
    float scale_;
    float taken_;
    std::int64_t size_;
    std::shared_ptr<const RowKernel> kernel_;
    std::vector<float> tops_;
    std::vector<float> powers_;
    std::vector<float> shares_;  // of p in the gradient, where rows differ in it
    std::vector<float> sums_;    // of logits beside the highest, where they are smoothed
};

}  // namespace

double softmax_cross_entropy(const SoftmaxCrossEntropy& problem) {
    Loss loss(problem);
    const Blocks tasks{problem.rows,
                       std::max<std::int64_t>(kLossTaskElements / problem.classes, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) { loss.run(tasks.at(task)); });
    return loss.result();
}

}  // namespace dlprim
