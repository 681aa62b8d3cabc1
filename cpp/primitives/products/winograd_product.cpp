#include "primitives/products/winograd_product.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "primitives/conv/conv2d.h"
#include "primitives/conv/plain_conv.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaps = 3;
// Cycles for each element of the images and of the result, which are brought into blocks and back.
constexpr double kCopy = 0.5;

// The indices of a product that are those of a convolution.
struct ImageIndices {
    const ProductIndex* n = nullptr;  // none of one image
    const ProductIndex* p = nullptr;
    const ProductIndex* q = nullptr;
    const ProductIndex* k = nullptr;
    const ProductIndex* c = nullptr;
    const ProductIndex* r = nullptr;
    const ProductIndex* s = nullptr;
};

const ProductIndex* with(const std::vector<ProductIndex>& indices,
                         std::int64_t ProductIndex::* stride, std::int64_t distance) {
    const auto found = std::find_if(indices.begin(), indices.end(),
                                    [&](const ProductIndex& it) { return it.*stride == distance; });
    return found == indices.end() ? nullptr : &*found;
}

// By the filters' distances, and by those that a tap and a pixel have in common.
std::optional<ImageIndices> indices_of(const StridedProduct& it) {
    const bool has_classes = it.outer.empty() && it.columns.size() == 1 && it.sums.size() == 3 &&
                             (it.rows.size() == 2 || it.rows.size() == 3);
    if (!has_classes) return {};
    ImageIndices made{.k = &it.columns.front(),
                      .c = with(it.sums, &ProductIndex::b, kTaps * kTaps),
                      .r = with(it.sums, &ProductIndex::b, kTaps),
                      .s = with(it.sums, &ProductIndex::b, 1)};
    if (made.c == nullptr || made.r == nullptr || made.s == nullptr) return {};
    made.p = with(it.rows, &ProductIndex::a, made.r->a);
    made.q = with(it.rows, &ProductIndex::a, made.s->a);
    if (made.p == nullptr || made.q == nullptr || made.p == made.q) return {};
    for (const ProductIndex& row : it.rows) {
        if (&row != made.p && &row != made.q) made.n = &row;
    }
    const bool is_whole = made.r->extent == kTaps && made.s->extent == kTaps &&
                          made.k->b == made.c->extent * kTaps * kTaps;
    return is_whole ? std::optional(made) : std::nullopt;
}

// Where an array has its images dense, each with its rows and columns as many as there are.
bool is_dense(const ConvShape& shape, Format layout, const ImageIndices& it) {
    const std::int64_t C = shape.C, W = shape.W, K = shape.K, Q = shape.Q(), P = shape.P();
    const std::int64_t image = C * shape.H * W, result = K * P * Q;
    if (it.n != nullptr && (it.n->a != image || it.n->c != result)) return false;
    if (layout == Format::nhwc) {
        return it.c->a == 1 && it.q->a == C && it.p->a == W * C && it.k->c == 1 && it.q->c == K &&
               it.p->c == Q * K;
    }
    return it.q->a == 1 && it.p->a == W && it.c->a == shape.H * W && it.q->c == 1 && it.p->c == Q &&
           it.k->c == P * Q;
}

std::optional<ConvSpec> spec_of(const StridedProduct& product) {
    const auto it = indices_of(product);
    const bool is_float =
        product.dtype == DType::f32 && product.b_type == DType::f32 && product.c_type == DType::f32;
    if (!it || !is_float || product.accumulates || product.scale != 1) return {};
    ConvSpec spec{.shape = {.N = it->n == nullptr ? 1 : it->n->extent,
                            .C = it->c->extent,
                            .H = it->p->extent + kTaps - 1,
                            .W = it->q->extent + kTaps - 1,
                            .K = it->k->extent,
                            .R = kTaps,
                            .S = kTaps},
                  .layout = it->c->a == 1 ? Format::nhwc : Format::blocked,
                  .activation = product.end.activation,
                  .bias = product.end.bias,
                  .algorithm = ConvAlgorithm::automatic};
    const bool has_bias_of_channels = product.end.bias_type == DType::f32 && it->k->bias == 1 &&
                                      it->p->bias == 0 && it->q->bias == 0 &&
                                      (it->n == nullptr || it->n->bias == 0);
    if (product.end.bias && !has_bias_of_channels) return {};
    return is_dense(spec.shape, spec.layout, *it) ? std::optional(spec) : std::nullopt;
}

}  // namespace

std::optional<WinogradProduct> WinogradProduct::of(const StridedProduct& product) {
    for (const bool exchanges : {false, true}) {
        WinogradProduct made;
        made.product_ = exchanges ? exchanged(product) : product;
        made.is_exchanged_ = exchanges;
        const auto spec = spec_of(made.product_);
        if (!spec) continue;
        const WinogradChoice choice = choose_winograd(*spec, PassKind::forward);
        if (choice.tile == 0) return {};
        const ConvShape& shape = spec->shape;
        made.of_direct_ = choice.of_direct;
        made.copied_ = kCopy * static_cast<double>(shape.N * (shape.C * shape.H * shape.W +
                                                              shape.K * shape.P() * shape.Q()));
        made.conv_ = std::make_shared<const PlainConv>(*spec);
        return made;
    }
    return {};
}

void WinogradProduct::run(const void* a, const void* b, const void* bias, void* c) const {
    if (is_exchanged_) std::swap(a, b);
    const auto* const added = static_cast<const float*>(bias);
    conv_->forward({.src = static_cast<const float*>(a) + product_.offset_a,
                    .weights = static_cast<const float*>(b) + product_.offset_b,
                    .bias = added == nullptr ? nullptr : added + product_.end.bias_offset,
                    .dst = static_cast<float*>(c) + product_.offset_c});
}

}  // namespace dlprim
