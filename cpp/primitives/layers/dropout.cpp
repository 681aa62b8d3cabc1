// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/dropout.h"

#include <cstdint>

#include "jit/isa.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/dropout.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
// clang-format on

#ifndef DLPRIM_PRIMITIVES_DROPOUT_CONSTANTS
#define DLPRIM_PRIMITIVES_DROPOUT_CONSTANTS
namespace dlprim {
namespace {

// Philox's multipliers and the increments of its key.
constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;
// Words of one counter, and neighbouring counters of a group of elements.
constexpr std::int64_t kWords = 4;
constexpr std::int64_t kCounters = kDropoutGroup / kWords;

}  // namespace
}  // namespace dlprim
#endif

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

using Words = hn::CappedTag<std::uint32_t, kCounters>;
using Vector32 = hn::Vec<Words>;

struct Product {
    Vector32 high;
    Vector32 low;
};

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Product wide_product(Vector32 x, Vector32 y) {
    const Words d;
    const hn::RepartitionToWide<Words> wide;
    const auto even = hn::BitCast(d, hn::MulEven(x, y));
    const auto odd =
        hn::BitCast(d, hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), y));
    return {hn::OddEven(odd, hn::DupOdd(even)), hn::OddEven(hn::DupEven(odd), even)};
}
#endif

// kCounters words of each of the four kinds, in the order of the elements.
HWY_INLINE void random_words(const Dropout& it, std::uint64_t group, std::uint32_t* words) {
#if HWY_TARGET == HWY_SCALAR
    for (std::int64_t i = 0; i < kCounters; ++i) {
        const std::uint64_t counter = group * kCounters + static_cast<std::uint64_t>(i);
        const auto random = philox(
            {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
             static_cast<std::uint32_t>(it.offset), static_cast<std::uint32_t>(it.offset >> 32)},
            {static_cast<std::uint32_t>(it.seed), static_cast<std::uint32_t>(it.seed >> 32)});
        for (std::int64_t word = 0; word < kWords; ++word) {
            words[word * kCounters + i] = random[static_cast<std::size_t>(word)];
        }
    }
#else
    const Words d;
    const auto low_words = [&](std::uint64_t value)
                               HWY_ATTR { return hn::Set(d, static_cast<std::uint32_t>(value)); };
    for (std::int64_t first = 0; first < kCounters; first += lanes<Words>) {
        // Counters of a group differ in the low word only.
        const std::uint64_t counter = group * kCounters + static_cast<std::uint64_t>(first);
        Vector32 c0 = hn::Iota(d, static_cast<std::uint32_t>(counter));
        Vector32 c1 = low_words(counter >> 32);
        Vector32 c2 = low_words(it.offset), c3 = low_words(it.offset >> 32);
        Vector32 key0 = low_words(it.seed), key1 = low_words(it.seed >> 32);
        for (int round = 0; round < kRounds; ++round) {
            const Product x = wide_product(c0, hn::Set(d, kMultiplier0));
            const Product y = wide_product(c2, hn::Set(d, kMultiplier1));
            c0 = hn::Xor(hn::Xor(y.high, c1), key0);
            c1 = y.low;
            c2 = hn::Xor(hn::Xor(x.high, c3), key1);
            c3 = x.low;
            key0 = hn::Add(key0, hn::Set(d, kWeyl0));
            key1 = hn::Add(key1, hn::Set(d, kWeyl1));
        }
        hn::Store(c0, d, words + first);
        hn::Store(c1, d, words + kCounters + first);
        hn::Store(c2, d, words + 2 * kCounters + first);
        hn::Store(c3, d, words + 3 * kCounters + first);
    }
#endif
}

float value_of(float value) { return value; }
float value_of(std::uint16_t half) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}
void put(float value, float* out) { *out = value; }
void put(float value, std::uint16_t* out) { *out = rounded_to_half(value); }

// Some elements of a group, one by one.
template <class Element>
void drop_some(const Dropout& it, const std::uint32_t* words, std::int64_t count,
               const Element* src, Element* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        put(words[i] >= it.threshold ? value_of(src[i]) * it.scale : 0.0F, out + i);
    }
}

#if HWY_TARGET != HWY_SCALAR
// A whole group. The threshold is below 2^32.
HWY_INLINE void drop_group(const Dropout& it, const std::uint32_t* words, const float* src,
                           float* out) {
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> bits;
    const auto threshold = hn::Set(bits, static_cast<std::uint32_t>(it.threshold));
    for (std::int64_t i = 0; i < kDropoutGroup; i += lanes<decltype(d)>) {
        // x >= y as max(x, y) == x: AVX2 compares no unsigned words.
        const auto random = hn::LoadU(bits, words + i);
        const auto kept = hn::RebindMask(d, hn::Eq(hn::Max(random, threshold), random));
        const auto scaled = hn::Mul(hn::LoadU(d, src + i), hn::Set(d, it.scale));
        hn::StoreU(hn::And(hn::VecFromMask(d, kept), scaled), d, out + i);
    }
}
HWY_INLINE void drop_group(const Dropout& it, const std::uint32_t* words, const std::uint16_t* src,
                           std::uint16_t* out) {
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> bits;
    const hn::Rebind<std::uint16_t, decltype(d)> halves;
    const hn::ScalableTag<std::uint16_t> both;
    HWY_ALIGN float wide[kDropoutGroup];
    for (std::int64_t i = 0; i < kDropoutGroup; i += lanes<decltype(d)>) {
        const auto words_of = hn::PromoteTo(bits, hn::LoadU(halves, src + i));
        hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(words_of)), d, wide + i);
    }
    drop_group(it, words, wide, wide);
    for (std::int64_t i = 0; i < kDropoutGroup; i += lanes<decltype(both)>) {
        hn::StoreU(rounded_to_halves(both, wide + i), both, out + i);
    }
}
#endif

// Elements from `first` on, a multiple of the group.
template <class Element>
void drop(const Dropout& it, Range range, const void* from, void* to) {
    const auto* const src = static_cast<const Element*>(from);
    auto* const out = static_cast<Element*>(to);
    HWY_ALIGN std::uint32_t words[kDropoutGroup];
    for (std::int64_t i = range.begin; i < range.end; i += kDropoutGroup) {
        random_words(it, static_cast<std::uint64_t>(i / kDropoutGroup), words);
#if HWY_TARGET != HWY_SCALAR
        if (range.end - i >= kDropoutGroup && it.threshold >> 32 == 0) {
            drop_group(it, words, src + i, out + i);
            continue;
        }
#endif
        drop_some(it, words, std::min(range.end - i, kDropoutGroup), src + i, out + i);
    }
}

auto drop_of(DType dtype) { return dtype == DType::f32 ? drop<float> : drop<std::uint16_t>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {
namespace {

constexpr std::int64_t kTaskElements = 16 * 1024;

using Drop = void (*)(const Dropout&, Range, const void*, void*);

Drop drop_function(DType dtype) { return DLPRIM_FOR_ISA(usable_isa(), drop_of)(dtype); }

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t x = std::uint64_t{kMultiplier0} * counter[0];
        const std::uint64_t y = std::uint64_t{kMultiplier1} * counter[2];
        counter = {static_cast<std::uint32_t>(y >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(y),
                   static_cast<std::uint32_t>(x >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(x)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

void run_dropout(const Dropout& dropout, DType dtype, std::int64_t count, const void* src,
                 void* out) {
    const Drop drop = drop_function(dtype);
    const Blocks tasks{count, kTaskElements};
    parallel_for(tasks.count(),
                 [&](std::int64_t task) { drop(dropout, tasks.at(task), src, out); });
}

}  // namespace dlprim
#endif
