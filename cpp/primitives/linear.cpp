#include "primitives/linear.h"

#include <algorithm>
#include <optional>

#include "primitives/buffer.h"
#include "primitives/matrix_product.h"
#include "primitives/pack.h"
#include "primitives/parallel.h"
#include "primitives/partition.h"

namespace dlprim {
namespace {

// Columns of a panel of weights^T.
std::int64_t panel_width(const LinearShape& shape) { return std::min(shape.K, kPanelColumns); }

// One panel of weights^T: [C][panel_width] from rows `channels` of weights (K, C). The columns
// beyond the last channel are left alone; no kernel reads them.
void pack_panel(const LinearShape& shape, const float* weights, Range channels, float* panel) {
    pack_b({.k = shape.C,
            .n = channels.size(),
            .transposed = true,
            .src = weights + channels.begin * shape.C,
            .ld_src = shape.C,
            .dst = panel,
            .ld_dst = panel_width(shape)});
}

// diff_dst through the activation, in `scratch` where that changes it. Written so that a NaN in
// dst lets the gradient pass, as PyTorch does.
const float* through_activation(const LinearShape& shape, const LinearBackward& tensors,
                                std::optional<Buffer>& scratch) {
    if (tensors.activation == Activation::none) return tensors.diff_dst;
    scratch.emplace(shape.N * shape.K);
    float* diff = scratch->data();
    parallel_for(shape.N, [&](std::int64_t n) {
        for (std::int64_t i = n * shape.K; i < (n + 1) * shape.K; ++i) {
            diff[i] = tensors.dst[i] <= 0 ? 0 : tensors.diff_dst[i];
        }
    });
    return diff;
}

}  // namespace

void linear_forward(const LinearShape& shape, const LinearForward& tensors) {
    if (shape.N == 0 || shape.K == 0) return;
    const Blocks panels{shape.K, kPanelColumns};
    const std::int64_t panel_size = shape.C * panel_width(shape);
    const Buffer packed(panels.count() * panel_size);
    parallel_for(panels.count(), [&](std::int64_t i) {
        pack_panel(shape, tensors.weights, panels.at(i), packed.data() + i * panel_size);
    });
    multiply({.m = shape.N,
              .n = shape.K,
              .k = shape.C,
              .a = tensors.src,
              .lda = shape.C,
              .b = packed.data(),
              .ldb = panel_width(shape),
              .b_panel_stride = panel_size,
              .c = tensors.dst,
              .ldc = shape.K,
              .bias = tensors.bias,
              .activation = tensors.activation});
}

void linear_backward(const LinearShape& shape, const LinearBackward& tensors) {
    std::optional<Buffer> scratch;
    const float* diff = through_activation(shape, tensors, scratch);
    multiply({.m = shape.N,
              .n = shape.C,
              .k = shape.K,
              .a = diff,
              .lda = shape.K,
              .b = tensors.weights,
              .ldb = shape.C,
              .c = tensors.diff_src,
              .ldc = shape.C});
    multiply({.m = shape.K,
              .n = shape.C,
              .k = shape.N,
              .a = diff,
              .lda = shape.K,
              .trans_a = true,
              .b = tensors.src,
              .ldb = shape.C,
              .c = tensors.diff_weights,
              .ldc = shape.C});
    // The sum over the minibatch is a product with a row of ones.
    const Buffer ones(shape.N);
    std::fill_n(ones.data(), shape.N, 1.0F);
    multiply({.m = 1,
              .n = shape.K,
              .k = shape.N,
              .a = ones.data(),  // a single row: any leading dimension fits
              .b = diff,
              .ldb = shape.K,
              .c = tensors.diff_bias,
              .ldc = shape.K});
}

}  // namespace dlprim
