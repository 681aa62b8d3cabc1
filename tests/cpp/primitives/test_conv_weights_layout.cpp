#include <bit>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "guarded_elements.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/reorder/pack.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::differences;
using testing::Elements;
using testing::Fence;

// Where weight (k, c, tap) of a shape is in the packed forms, k of all groups and c of one.
class Index {
public:
    Index(const ConvShape& shape, DType dtype)
        : C_(src_blocks(shape)),
          K_(dst_blocks(shape)),
          taps_(shape.R * shape.S),
          word_(elements_per_word(dtype)) {}

    std::int64_t packed(std::int64_t k, std::int64_t c, std::int64_t tap) const {
        return at(packed_block(k, c) * taps_ + tap, {C_.block, c % C_.block},
                  {K_.block, k % K_.channels % K_.block}, word_);
    }

    std::int64_t plain_order(std::int64_t k, std::int64_t c, std::int64_t tap) const {
        return at(packed_block(k, c) * taps_ + tap, {C_.block, c % C_.block},
                  {K_.block, k % K_.channels % K_.block}, 1);
    }

    std::int64_t transposed(std::int64_t k, std::int64_t c, std::int64_t tap) const {
        const std::int64_t block =
            (k / K_.channels * C_.per_group() + c / C_.block) * K_.per_group() +
            k % K_.channels / K_.block;
        return at(block * taps_ + tap, {K_.block, k % K_.channels % K_.block},
                  {C_.block, c % C_.block}, word_);
    }

private:
    struct Within {
        std::int64_t block;
        std::int64_t channel;
    };

    std::int64_t packed_block(std::int64_t k, std::int64_t c) const {
        const std::int64_t in_group = k % K_.channels / K_.block;
        return (k / K_.channels * K_.per_group() + in_group) * C_.per_group() + c / C_.block;
    }

    // Rows of which `group` neighbours are side by side.
    static std::int64_t at(std::int64_t matrix, Within row, Within column, std::int64_t group) {
        const std::int64_t rows = (row.block + group - 1) / group;
        return ((matrix * rows + row.channel / group) * column.block + column.channel) * group +
               row.channel % group;
    }

    ChannelBlocks C_;
    ChannelBlocks K_;
    std::int64_t taps_;
    std::int64_t word_;
};

void pack_weights(const ConvShape& shape, DType from, DType to, const void* plain, void* packed) {
    const std::vector<TensorForm> forms = conv_forms({shape, to, Format::blocked});
    Layout layout = form_of(forms, "weights").plain;
    layout.dtype = from;
    reorder(layout, plain, weights_layout({shape, to}), packed);
}

void unpack_weights(const ConvShape& shape, DType dtype, const void* packed, void* plain) {
    const std::vector<TensorForm> forms = conv_forms({shape, dtype, Format::blocked});
    reorder(weights_layout({shape, dtype}), packed, form_of(forms, "weights").plain, plain);
}

void unpack_diff_weights(const ConvShape& shape, DType dtype, const void* packed, void* plain) {
    const std::vector<TensorForm> forms = conv_forms({shape, dtype, Format::blocked});
    const char* const name = dtype == DType::f32 ? "diff_weights" : "narrow_diff_weights";
    reorder(form_of(forms, name).packed, packed, form_of(forms, name).plain, plain);
}

struct Weight {
    std::int64_t plain;
    std::int64_t k;
    std::int64_t c;
    std::int64_t tap;
};

template <class Body>
void for_weights(const ConvShape& shape, const Body& body) {
    const std::int64_t taps = shape.R * shape.S;
    std::int64_t plain = 0;
    for (std::int64_t k = 0; k < shape.K; ++k) {
        for (std::int64_t c = 0; c < shape.group_C(); ++c) {
            for (std::int64_t tap = 0; tap < taps; ++tap) body(Weight{plain++, k, c, tap});
        }
    }
}

void check(const ConvShape& shape, DType dtype, Fence fence) {
    CAPTURE(shape.C);
    CAPTURE(shape.K);
    CAPTURE(shape.groups);
    CAPTURE(name_of(dtype));
    const Index index(shape, dtype);
    const std::int64_t count = shape.K * shape.group_C() * shape.R * shape.S;
    Elements plain(count, dtype, fence), back(count, dtype, fence), diff_back(count, dtype, fence);
    plain.number();
    Elements packed(packed_weights_size(shape, dtype), dtype, fence);
    Elements packed_expected(packed.count(), dtype, fence);
    Elements transposed(transposed_weights_layout(shape, dtype).elements(), dtype, fence);
    Elements transposed_expected(transposed.count(), dtype, fence);
    Elements diff(packed_weights_size(shape, DType::f32), dtype, fence);
    packed_expected.clear();
    transposed_expected.clear();
    for_weights(shape, [&](const Weight& w) {
        packed_expected.set(index.packed(w.k, w.c, w.tap), plain.at(w.plain));
        transposed_expected.set(index.transposed(w.k, w.c, w.tap), plain.at(w.plain));
        diff.set(index.plain_order(w.k, w.c, w.tap), plain.at(w.plain));
    });
    pack_weights(shape, dtype, dtype, plain.data(), packed.data());
    CHECK(differences(packed, packed_expected) == 0);
    reorder(weights_layout({shape, dtype}), packed.data(), transposed_weights_layout(shape, dtype),
            transposed.data());
    CHECK(differences(transposed, transposed_expected) == 0);
    unpack_weights(shape, dtype, packed.data(), back.data());
    CHECK(differences(back, plain) == 0);
    unpack_diff_weights(shape, dtype, diff.data(), diff_back.data());
    CHECK(differences(diff_back, plain) == 0);
}

ConvShape shape_of(std::int64_t C, std::int64_t K, std::int64_t R, std::int64_t S,
                   std::int64_t groups = 1) {
    return validated({.N = 1,
                      .C = C * groups,
                      .H = R,
                      .W = S,
                      .K = K * groups,
                      .R = R,
                      .S = S,
                      .groups = groups});
}

// float32 is packed to what it is packed to after rounding.
void check_rounding(const ConvShape& shape, Fence fence) {
    CAPTURE(shape.C);
    CAPTURE(shape.K);
    CAPTURE(shape.groups);
    CAPTURE(shape.R);
    const std::int64_t count = shape.K * shape.group_C() * shape.R * shape.S;
    Elements plain(count, DType::f32, fence), rounded(count, DType::bf16, fence);
    auto* const values = static_cast<float*>(plain.data());
    for (std::int64_t i = 0; i < count; ++i) {  // all kinds: NaN, infinite, subnormal, ties
        values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 0x9e3779b1));
    }
    round_to_bf16(values, static_cast<std::uint16_t*>(rounded.data()), count);
    const std::int64_t size = packed_weights_size(shape, DType::bf16);
    Elements packed(size, DType::bf16, fence), expected(size, DType::bf16, fence);
    pack_weights(shape, DType::f32, DType::bf16, plain.data(), packed.data());
    pack_weights(shape, DType::bf16, DType::bf16, rounded.data(), expected.data());
    CHECK(differences(packed, expected) == 0);
}

void check_filters(std::int64_t C, std::int64_t K, std::int64_t groups) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        check(shape_of(C, K, 1, 1, groups), dtype, Fence::after);
        check(shape_of(C, K, 1, 1, groups), dtype, Fence::before);
        check(shape_of(C, K, 2, 3, groups), dtype, Fence::after);
        check(shape_of(C, K, 3, 3, groups), dtype, Fence::before);
        check(shape_of(C, K, 3, 3, groups), dtype, Fence::after);
    }
    for (const Fence fence : {Fence::before, Fence::after}) {
        check_rounding(shape_of(C, K, 1, 1, groups), fence);
        check_rounding(shape_of(C, K, 3, 3, groups), fence);
    }
}

TEST_CASE("weights of every number of channels") {
    for (const std::int64_t C : {1, 2, 3, 5, 17, 31, 64, 65, 96, 100, 130, 257}) {
        for (const std::int64_t K : {1, 3, 6, 17, 64, 65, 130}) check_filters(C, K, 1);
    }
}

TEST_CASE("weights in groups") {
    for (const std::int64_t groups : {2, 3}) {
        for (const std::int64_t C : {1, 4, 33, 70}) {
            for (const std::int64_t K : {2, 7, 65}) check_filters(C, K, groups);
        }
    }
}

TEST_CASE("a filter larger than the scratch, and any number of threads") {
    const int before = num_threads();
    for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        for (const DType dtype : {DType::f32, DType::bf16}) {
            check(shape_of(5, 64, 11, 13), dtype, Fence::after);
            check(shape_of(200, 130, 3, 3), dtype, Fence::after);
        }
        check_rounding(shape_of(5, 64, 11, 13), Fence::after);
        check_rounding(shape_of(200, 130, 3, 3), Fence::before);
    }
    set_num_threads(before);
}

TEST_CASE("depthwise weights") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t channels : {2, 3, 17, 64, 65, 100, 257}) {
            const ConvShape shape = shape_of(1, 1, 3, 2, channels);
            const std::int64_t block = src_blocks(shape).block;
            CAPTURE(channels);
            Elements plain(channels * 6, dtype, Fence::after);
            Elements back(plain.count(), dtype, Fence::after);
            Elements diff_back(plain.count(), dtype, Fence::after);
            plain.number();
            Elements packed(packed_weights_size(shape, dtype), dtype, Fence::after);
            Elements expected(src_blocks(shape).count() * 6 * block, dtype, Fence::after);
            REQUIRE(packed.count() == expected.count());
            expected.clear();
            for_weights(shape, [&](const Weight& w) {
                expected.set((w.k / block * 6 + w.tap) * block + w.k % block, plain.at(w.plain));
            });
            pack_weights(shape, dtype, dtype, plain.data(), packed.data());
            CHECK(differences(packed, expected) == 0);
            unpack_weights(shape, dtype, packed.data(), back.data());
            CHECK(differences(back, plain) == 0);
            unpack_diff_weights(shape, dtype, packed.data(), diff_back.data());
            CHECK(differences(diff_back, plain) == 0);
            check_rounding(shape, Fence::after);
        }
    }
}

}  // namespace
}  // namespace dlprim
