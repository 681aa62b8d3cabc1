#include "brgemm/reference.h"

#include <cstddef>

namespace dlprim {
namespace {

const float* matrix(const BrgemmSpec& spec, const void* base, const std::int64_t* offsets,
                    std::int64_t stride, std::int64_t i) {
    if (spec.addressing == Addressing::address) return static_cast<const float* const*>(base)[i];
    const std::int64_t bytes = spec.addressing == Addressing::offset ? offsets[i] : i * stride;
    return reinterpret_cast<const float*>(static_cast<const std::byte*>(base) + bytes);
}

float apply(Activation activation, float value) {
    if (activation == Activation::relu) return value < 0 ? 0 : value;  // keeps NaN
    return value;
}

}  // namespace

void reference_brgemm(const BrgemmSpec& spec, const BrgemmArgs& args) {
    auto* c = static_cast<float*>(args.c);
    const std::int64_t a_row = spec.trans_a ? 1 : spec.lda;
    const std::int64_t a_step = spec.trans_a ? spec.lda : 1;
    for (std::int64_t row = 0; row < spec.m; ++row) {
        for (std::int64_t column = 0; column < spec.n; ++column) {
            float& out = c[row * spec.ldc + column];
            float sum = spec.beta == 1 ? out : 0;
            for (std::int64_t i = 0; i < args.batch; ++i) {
                const float* a = matrix(spec, args.a, args.offsets_a, args.stride_a, i);
                const float* b = matrix(spec, args.b, args.offsets_b, args.stride_b, i);
                for (std::int64_t step = 0; step < spec.k; ++step) {
                    sum += a[row * a_row + step * a_step] * b[step * spec.ldb + column];
                }
            }
            if (spec.epilogue.bias) sum += args.bias[column];
            out = apply(spec.epilogue.activation, sum);
        }
    }
}

}  // namespace dlprim
