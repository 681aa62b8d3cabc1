// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/dropout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "jit/isa.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/dropout.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/layers/channel_arithmetic-inl.h"
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

using Counters = hn::CappedTag<std::uint32_t, kCounters>;
using Vector32 = hn::Vec<Counters>;

struct WideProduct {
    Vector32 high;
    Vector32 low;
};

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE WideProduct wide_product(Vector32 x, Vector32 y) {
    const Counters d;
    const hn::RepartitionToWide<Counters> wide;
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
    const Counters d;
    const auto low_words = [&](std::uint64_t value)
                               HWY_ATTR { return hn::Set(d, static_cast<std::uint32_t>(value)); };
    for (std::int64_t first = 0; first < kCounters; first += lanes<Counters>) {
        // Counters of a group differ in the low word only.
        const std::uint64_t counter = group * kCounters + static_cast<std::uint64_t>(first);
        Vector32 c0 = hn::Iota(d, static_cast<std::uint32_t>(counter));
        Vector32 c1 = low_words(counter >> 32);
        Vector32 c2 = low_words(it.offset), c3 = low_words(it.offset >> 32);
        Vector32 key0 = low_words(it.seed), key1 = low_words(it.seed >> 32);
        for (int round = 0; round < kRounds; ++round) {
            const WideProduct x = wide_product(c0, hn::Set(d, kMultiplier0));
            const WideProduct y = wide_product(c2, hn::Set(d, kMultiplier1));
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

// Where the random word, whose bits are in `random`, is not below the threshold: scale * x.
struct Kept {
    std::uint32_t threshold;
    float scale;

    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector random) const {
        // x >= y as max(x, y) == x: AVX2 compares no unsigned words.
        const auto word = hn::BitCast(Words(), random);
        const auto kept = hn::Eq(hn::Max(word, hn::Set(Words(), threshold)), word);
        return hn::And(hn::BitCast(Floats(), hn::VecFromMask(Words(), kept)),
                       hn::Mul(x, number(scale)));
    }
};

template <class Element>
struct DropoutRow {
    Kept kept;
    const float* random;
    const Element* src;
    Element* out;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t at, Part part) const {
        using Vector = ChannelVector<Element>;
        each(kept, Vector::load(src + at, part), Vector::load_floats(random + at, part))
            .store(out + at, part);
    }
};

// Elements from `range.begin` on, a multiple of the group.
template <class Element>
void drop(const Dropout& it, Range range, const void* from, void* to) {
    const auto* const src = static_cast<const Element*>(from);
    auto* const out = static_cast<Element*>(to);
    if (it.threshold >> 32 != 0) {
        std::fill(out + range.begin, out + range.end, Element{0});
        return;
    }
    const Kept kept{static_cast<std::uint32_t>(it.threshold), it.scale};
    HWY_ALIGN std::uint32_t words[kDropoutGroup];
    HWY_ALIGN float random[kDropoutGroup];
    for (std::int64_t i = range.begin; i < range.end; i += kDropoutGroup) {
        random_words(it, static_cast<std::uint64_t>(i / kDropoutGroup), words);
        std::memcpy(random, words, sizeof(words));
        along_channels<Element, 1>(std::min(range.end - i, kDropoutGroup),
                                   DropoutRow<Element>{kept, random, src + i, out + i});
    }
}

auto drop_of(DType dtype) { return dtype == DType::f32 ? drop<float> : drop<std::uint16_t>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

static constexpr std::int64_t kTaskElements = 16 * 1024;

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
    const auto drop = DLPRIM_FOR_ISA(usable_isa(), drop_of)(dtype);
    const Blocks tasks{count, kTaskElements};
    parallel_for(tasks.count(),
                 [&](std::int64_t task) { drop(dropout, tasks.at(task), src, out); });
}

}  // namespace dlprim
#endif
