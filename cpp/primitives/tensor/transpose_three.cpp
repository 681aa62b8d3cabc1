// Compiled once per target, as per_isa.h describes.
#include "primitives/tensor/transpose_three.h"

#include <cstdint>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/tensor/transpose_three.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Both of these move triples: `single` one, `vector` as many as D has lanes.

template <class Lane>
struct Join {
    const Lane* src;
    std::int64_t ld;
    Lane* dst;
    std::int64_t triples;

    explicit Join(const Transposition& matrix)
        : src(static_cast<const Lane*>(matrix.src)),
          ld(matrix.ld_src),
          dst(static_cast<Lane*>(matrix.dst)),
          triples(matrix.columns) {}

    void single(std::int64_t i) const {
        for (std::int64_t row = 0; row < 3; ++row) dst[3 * i + row] = src[row * ld + i];
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        hn::StoreInterleaved3(hn::LoadU(d, src + i), hn::LoadU(d, src + ld + i),
                              hn::LoadU(d, src + 2 * ld + i), d, dst + 3 * i);
    }
#endif
};

template <class Lane>
struct Split {
    const Lane* src;
    Lane* dst;
    std::int64_t ld;
    std::int64_t triples;

    explicit Split(const Transposition& matrix)
        : src(static_cast<const Lane*>(matrix.src)),
          dst(static_cast<Lane*>(matrix.dst)),
          ld(matrix.ld_dst),
          triples(matrix.rows) {}

    void single(std::int64_t i) const {
        for (std::int64_t row = 0; row < 3; ++row) dst[row * ld + i] = src[3 * i + row];
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        Vector<D> first, second, third;
        hn::LoadInterleaved3(d, src + 3 * i, first, second, third);
        hn::StoreU(first, d, dst + i);
        hn::StoreU(second, d, dst + ld + i);
        hn::StoreU(third, d, dst + 2 * ld + i);
    }
#endif
};

// The last vector overlaps the one before it.
template <class Lane, template <class> class Way>
void move_triples(const Transposition& matrix) {
    const Way<Lane> way(matrix);
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<Lane> d;
    constexpr std::int64_t n = lanes<decltype(d)>;
    if (way.triples >= n) {
        std::int64_t i = 0;
        for (; i + n <= way.triples; i += n) way.vector(d, i);
        if (i < way.triples) way.vector(d, way.triples - n);
        return;
    }
#endif
    for (std::int64_t i = 0; i < way.triples; ++i) way.single(i);
}

ThreeFunctions functions(DType dtype) {
    if (dtype == DType::f32) {
        return {move_triples<std::uint32_t, Join>, move_triples<std::uint32_t, Split>};
    }
    return {move_triples<std::uint16_t, Join>, move_triples<std::uint16_t, Split>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ThreeFunctions three_functions(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, functions)(dtype);
}

}  // namespace dlprim
#endif
