// Neighbouring channels of float32 or bfloat16 tensors as float32 in registers, for the files that
// are compiled once per vector width. bfloat16 keeps a register of even and one of odd channels:
// widening is then a shift or a mask, and rounding needs no shuffle either.
#if defined(DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#undef DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#else
#define DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "primitives/tensor/float_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// In one register.
template <class Element>
struct OneRegister {
    using Memory = Element;
    using Narrow = OneRegister;  // for what is left of a block
    static constexpr int kRegisters = 1;
    static constexpr std::int64_t kChannels = kFloatLanes;
    FloatVector values;

    static HWY_INLINE OneRegister all_of(FloatVector value) { return {value}; }
    static HWY_INLINE OneRegister zero() { return {hn::Zero(Floats())}; }
    template <class Part = All>
    static HWY_INLINE OneRegister load_floats(const float* src, Part part = {}) {
        return {load_part(Floats(), src, part)};
    }
    template <class Part>
    static HWY_INLINE OneRegister load(const Element* src, Part part) {
        return {load_values(src, part)};
    }
    template <class Part>
    HWY_INLINE void store(Element* dst, Part part) const {
        store_values(values, dst, part);
    }
    // Of what came from such memory: all bits, those of a NaN too.
    template <class Part>
    HWY_INLINE void store_exactly(Element* dst, Part part) const {
        if constexpr (std::is_same_v<Element, float>) {
            store_values(values, dst, part);
        } else {
            store_upper_halves(hn::BitCast(Words(), values), dst, part);
        }
    }
    HWY_INLINE void store_floats(float* dst) const { hn::StoreU(values, Floats(), dst); }
    HWY_INLINE void multiply_add(const OneRegister& x, const OneRegister& y) {
        values = hn::MulAdd(x.values, y.values, values);
    }
    HWY_INLINE void add(const OneRegister& x) { values = hn::Add(values, x.values); }
    HWY_INLINE void relu() { values = relu_of(values); }
    HWY_INLINE float total() const { return hn::GetLane(hn::SumOfLanes(Floats(), values)); }
};

#if HWY_TARGET != HWY_SCALAR

struct EvenAndOdd {
    using Memory = std::uint16_t;
    // Blocks are whole registers of the other widths.
    using Narrow =
        std::conditional_t<(HWY_TARGET <= HWY_AVX3), OneRegister<std::uint16_t>, EvenAndOdd>;
    static constexpr int kRegisters = 2;
    static constexpr std::int64_t kChannels = 2 * kFloatLanes;
    FloatVector even;
    FloatVector odd;

    static HWY_INLINE EvenAndOdd all_of(FloatVector value) { return {value, value}; }
    static HWY_INLINE EvenAndOdd zero() { return all_of(hn::Zero(Floats())); }
    static HWY_INLINE EvenAndOdd load_floats(const float* src, All = {}) {
        return from_neighbours(hn::LoadU(Floats(), src), hn::LoadU(Floats(), src + kFloatLanes));
    }
    static HWY_INLINE EvenAndOdd load_floats(const float* src, First part) {
        const std::int64_t low = std::min(part.count, kFloatLanes);
        return from_neighbours(load_part(Floats(), src, First{low}),
                               load_part(Floats(), src + low, First{part.count - low}));
    }
    static HWY_INLINE EvenAndOdd of(Vector<Halves> halves) {
        const auto pairs = hn::BitCast(Words(), halves);
        return {from_lower_halves(pairs), from_upper_halves(pairs)};
    }
    template <class Part>
    static HWY_INLINE EvenAndOdd load(const std::uint16_t* src, Part part) {
        return of(load_part(Halves(), src, part));
    }
    template <class Part>
    HWY_INLINE void store(std::uint16_t* dst, Part part) const {
        store_pairs(rounded(Words(), even), rounded(Words(), odd), dst, part);
    }
    template <class Part>
    HWY_INLINE void store_exactly(std::uint16_t* dst, Part part) const {
        store_pairs(hn::BitCast(Words(), even), hn::BitCast(Words(), odd), dst, part);
    }
    HWY_INLINE void store_floats(float* dst) const {
        hn::StoreInterleaved2(even, odd, Floats(), dst);
    }
    HWY_INLINE void multiply_add(const EvenAndOdd& x, const EvenAndOdd& y) {
        even = hn::MulAdd(x.even, y.even, even);
        odd = hn::MulAdd(x.odd, y.odd, odd);
    }
    HWY_INLINE void add(const EvenAndOdd& x) {
        even = hn::Add(even, x.even);
        odd = hn::Add(odd, x.odd);
    }
    HWY_INLINE void relu() {
        even = relu_of(even);
        odd = relu_of(odd);
    }
    HWY_INLINE float total() const {
        return hn::GetLane(hn::SumOfLanes(Floats(), hn::Add(even, odd)));
    }

private:
    template <class Part>
    static HWY_INLINE void store_pairs(Vector<Words> low, Vector<Words> high, std::uint16_t* dst,
                                       Part part) {
        const auto pairs =
            hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(Words(), 0xffff0000)));
        store_part(Halves(), hn::BitCast(Halves(), pairs), dst, part);
    }
    static HWY_INLINE EvenAndOdd from_neighbours(FloatVector low, FloatVector high) {
        return {hn::ConcatEven(Floats(), high, low), hn::ConcatOdd(Floats(), high, low)};
    }
};

template <class Element>
using ChannelVector =
    std::conditional_t<std::is_same_v<Element, float>, OneRegister<float>, EvenAndOdd>;

#else

template <class Element>
using ChannelVector = OneRegister<Element>;

#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
