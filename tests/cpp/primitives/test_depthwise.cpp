#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "conv_problem.h"
#include "primitives/depthwise/depthwise.h"
#include "primitives/reorder/pack.h"
#include "stored_tensor.h"
#include "typed_problem.h"

namespace dlprim {
namespace {

using testing::Extents;
using testing::Fence;
using testing::GuardedBytes;
using testing::Plain;
using testing::StoredTensor;
using testing::Threads;

constexpr std::byte kUntouched{0xa5};

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

char* scratch(const GuardedBytes& memory) { return reinterpret_cast<char*>(memory.data()); }

struct Tensors {
    Plain src;
    Plain weights;
    Plain bias;
    Plain residual;
    Plain diff_dst;
};

struct Results {
    Plain dst;
    Plain diff_src;
    Plain diff_weights;

    friend bool operator==(const Results&, const Results&) = default;
};

Extents src_extents(const ConvShape& shape) { return {shape.N, shape.C, shape.H, shape.W}; }
Extents dst_extents(const ConvShape& shape) { return {shape.N, shape.C, shape.P(), shape.Q()}; }
Extents weights_extents(const ConvShape& shape) { return {1, shape.C, shape.R, shape.S}; }

template <class Draw>
Tensors tensors(const ConvShape& shape, const Draw& draw) {
    const auto drawn = [&](std::int64_t size) {
        Plain plain(at(size));
        std::generate(plain.begin(), plain.end(), draw);
        return plain;
    };
    const std::int64_t dst = dst_extents(shape).size();
    return {drawn(src_extents(shape).size()), drawn(weights_extents(shape).size()), drawn(shape.C),
            drawn(dst), drawn(dst)};
}

// Sums of products of these are exact in any order.
Tensors eighths(const ConvShape& shape, std::mt19937& random) {
    return tensors(shape,
                   [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8) / 8; });
}

Plain rounded(DType dtype, const std::vector<double>& values) {
    Plain plain(values.begin(), values.end());
    if (dtype == DType::f32) return plain;
    std::vector<std::uint16_t> halves(plain.size());
    round_to_bf16(plain.data(), halves.data(), static_cast<std::int64_t>(plain.size()));
    widen_to_f32(halves.data(), plain.data(), static_cast<std::int64_t>(plain.size()));
    return plain;
}

// body(index of dst, of src, of weights) for all products of a convolution.
template <class Body>
void for_products(const ConvShape& shape, const Body& body) {
    const std::int64_t P = shape.P();
    const std::int64_t Q = shape.Q();
    for (std::int64_t i = 0; i < dst_extents(shape).size(); ++i) {
        const std::int64_t plane = i / (P * Q);
        for (std::int64_t tap = 0; tap < shape.R * shape.S; ++tap) {
            const std::int64_t h =
                i / Q % P * shape.stride_h + tap / shape.S * shape.dilation_h - shape.pad_top;
            const std::int64_t w =
                i % Q * shape.stride_w + tap % shape.S * shape.dilation_w - shape.pad_left;
            if (h < 0 || h >= shape.H || w < 0 || w >= shape.W) continue;
            body(at(i), at((plane * shape.H + h) * shape.W + w),
                 at(plane % shape.C * shape.R * shape.S + tap));
        }
    }
}

Results expected(const ConvProblem& problem, const Tensors& given, bool epilogue) {
    const ConvShape& shape = problem.shape;
    std::vector<double> dst(given.diff_dst.size());
    std::vector<double> diff_src(given.src.size());
    std::vector<double> diff_weights(given.weights.size());
    for_products(shape, [&](std::size_t out, std::size_t in, std::size_t tap) {
        dst[out] += double{given.src[in]} * double{given.weights[tap]};
        diff_src[in] += double{given.diff_dst[out]} * double{given.weights[tap]};
        diff_weights[tap] += double{given.diff_dst[out]} * double{given.src[in]};
    });
    for (std::size_t i = 0; epilogue && i < dst.size(); ++i) {
        const auto c = static_cast<std::int64_t>(i) / (shape.P() * shape.Q()) % shape.C;
        dst[i] = std::max(dst[i] + double{given.bias[at(c)]} + double{given.residual[i]}, 0.0);
    }
    return {rounded(problem.dtype, dst), rounded(problem.dtype, diff_src),
            rounded(problem.dtype, diff_weights)};
}

StoredTensor stored(const Plain& plain, const Extents& extents, const ConvProblem& problem,
                    Fence fence) {
    StoredTensor tensor(extents, problem.dtype, problem.layout, fence);
    tensor.write(plain);
    return tensor;
}

Results computed(const ConvProblem& problem, const Tensors& given, bool epilogue, Fence fence) {
    const ConvShape& shape = problem.shape;
    const StoredTensor src = stored(given.src, src_extents(shape), problem, fence);
    const StoredTensor diff_dst = stored(given.diff_dst, dst_extents(shape), problem, fence);
    const StoredTensor residual = stored(given.residual, dst_extents(shape), problem, fence);
    StoredTensor weights(weights_extents(shape), problem.dtype, Format::blocked, fence);
    weights.write(given.weights);
    GuardedBytes bias(shape.C * 4, fence);
    std::memcpy(bias.data(), given.bias.data(), given.bias.size() * sizeof(float));
    StoredTensor dst(dst_extents(shape), problem.dtype, problem.layout, fence);
    StoredTensor diff_src(src_extents(shape), problem.dtype, problem.layout, fence);
    StoredTensor diff_weights(weights_extents(shape), problem.dtype, Format::blocked, fence);
    for (StoredTensor* const tensor : {&dst, &diff_src, &diff_weights}) tensor->fill(kUntouched);

    ConvTensors tensors{.src = src.data(), .diff_dst = diff_dst.data(), .to = problem.dtype};
    tensors.weights = weights.data();
    if (epilogue) tensors.bias = reinterpret_cast<const float*>(bias.data());
    if (epilogue) tensors.residual = residual.data();
    tensors.result = dst.data();
    const ConvSpec spec{.shape = shape,
                        .dtype = problem.dtype,
                        .layout = problem.layout,
                        .activation = epilogue ? Activation::relu : Activation::none};
    depthwise_images_pass(spec, PassKind::forward)->run(tensors);
    tensors.result = diff_src.data();
    depthwise_images_pass(spec, PassKind::backward_data)->run(tensors);
    tensors.result = diff_weights.data();
    const auto gradient = depthwise_weights_pass(spec);
    gradient->write(tensors, scratch({gradient->scratch_bytes(), fence}));
    Results results{dst.read(), diff_src.read(), diff_weights.read()};
    CHECK(dst.padding_is(kUntouched));
    CHECK(diff_src.padding_is(kUntouched));
    return results;
}

ConvShape drawn_shape(std::mt19937& random) {
    const auto from = [&](int low, int high) {
        return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
    };
    for (;;) {
        ConvShape shape{.N = from(0, 3), .C = from(2, 90), .H = from(1, 18), .W = from(1, 18)};
        shape.K = shape.groups = shape.C;
        shape.R = from(1, 7);
        shape.S = random() % 3 == 0 ? from(1, 9) : shape.R;
        shape.stride_h = from(1, 3);
        shape.stride_w = random() % 3 == 0 ? from(1, 9) : shape.stride_h;
        shape.pad_top = from(0, 4);
        shape.pad_bottom = from(0, 9);
        shape.pad_left = from(0, 9);
        shape.pad_right = from(0, 4);
        shape.dilation_h = from(1, 2);
        shape.dilation_w = random() % 2 == 0 ? 1 : from(1, 4);
        const bool fits_down =
            shape.H + shape.pad_top + shape.pad_bottom > (shape.R - 1) * shape.dilation_h;
        const bool fits_across =
            shape.W + shape.pad_left + shape.pad_right > (shape.S - 1) * shape.dilation_w;
        if (fits_down && fits_across) return shape;
    }
}

// Both element types, in both layouts.
template <class Body>
void for_problems(const ConvShape& shape, const Body& body) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Format layout : {Format::blocked, Format::nhwc}) {
            body(ConvProblem{validated(shape), dtype, layout});
        }
    }
}

ConvShape square_filter(const Extents& src, std::int64_t filter, std::int64_t stride) {
    return {.N = src.images,
            .C = src.channels,
            .H = src.height,
            .W = src.width,
            .K = src.channels,
            .R = filter,
            .S = filter,
            .stride_h = stride,
            .stride_w = stride,
            .pad_top = filter / 2,
            .pad_bottom = filter / 2,
            .pad_left = filter / 2,
            .pad_right = filter / 2,
            .groups = src.channels};
}

TEST_CASE("all passes agree with sums in double, and touch nothing else") {
    std::mt19937 random(1);
    for (unsigned i = 0; i < testing::cases(200); ++i) {
        const ConvShape shape = drawn_shape(random);
        const Tensors given = eighths(shape, random);
        const Fence fence = i % 2 == 0 ? Fence::after : Fence::before;
        for_problems(shape, [&](const ConvProblem& problem) {
            const bool epilogue = i % 3 == 0;
            CAPTURE(i);
            CHECK(computed(problem, given, epilogue, fence) == expected(problem, given, epilogue));
        });
    }
}

TEST_CASE("the bits depend neither on the number of threads nor on the layout") {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (const ConvShape& shape :
         {square_filter({3, 70, 21, 19}, 3, 1), square_filter({2, 40, 34, 35}, 3, 2),
          square_filter({1, 33, 24, 24}, 5, 1), square_filter({5, 100, 7, 7}, 4, 3)}) {
        const Tensors given = tensors(shape, [&] { return normal(random); });
        Results first[2];
        for_problems(shape, [&](const ConvProblem& problem) {
            for (const int threads : {1, 2, 5}) {
                const Threads guard(threads);
                const Results results = computed(problem, given, true, Fence::after);
                Results& expected_bits = first[problem.dtype == DType::f32 ? 0 : 1];
                if (expected_bits.dst.empty()) expected_bits = results;
                CHECK(results == expected_bits);
            }
        });
    }
}

TEST_CASE("unusual geometries") {
    std::mt19937 random(3);
    ConvShape wide_padding = square_filter({2, 35, 3, 2}, 2, 1);
    wide_padding.pad_top = wide_padding.pad_left = wide_padding.pad_right = 6;
    ConvShape rows_only = square_filter({2, 33, 9, 9}, 3, 2);
    rows_only.S = 1;
    ConvShape dilated = square_filter({2, 48, 17, 17}, 3, 2);
    dilated.dilation_h = dilated.dilation_w = 4;
    for (const ConvShape& shape :
         {wide_padding, rows_only, dilated, square_filter({0, 5, 8, 8}, 3, 1),
          square_filter({2, 35, 19, 23}, 2, 5), square_filter({2, 64, 1, 1}, 1, 1),
          square_filter({3, 35, 41, 29}, 3, 1)}) {
        const Tensors given = eighths(shape, random);
        for_problems(shape, [&](const ConvProblem& problem) {
            CHECK(computed(problem, given, true, Fence::after) == expected(problem, given, true));
        });
    }
}

TEST_CASE("nothing is multiplied by padding") {
    const ConvShape shape = square_filter({1, 20, 9, 9}, 3, 1);
    Tensors given = tensors(shape, [] { return 1.0F; });
    for (std::int64_t c = 0; c < shape.C; ++c) {
        // The first tap meets the first row and column of dst only where there is padding.
        given.weights[at(c * 9)] = given.diff_dst[at(c * 81)] =
            std::numeric_limits<float>::infinity();
    }
    for_problems(shape, [&](const ConvProblem& problem) {
        CHECK(computed(problem, given, false, Fence::after) == expected(problem, given, false));
    });
}

TEST_CASE("relu keeps NaN") {
    const ConvShape shape = square_filter({1, 20, 4, 4}, 1, 1);
    const Tensors given = tensors(shape, [] { return std::numeric_limits<float>::quiet_NaN(); });
    for_problems(shape, [&](const ConvProblem& problem) {
        const Plain dst = computed(problem, given, true, Fence::after).dst;
        CHECK(std::all_of(dst.begin(), dst.end(), [](float value) { return value != value; }));
    });
}

TEST_CASE("the gradient of bfloat16 weights comes in float32 too, with zeros as padding") {
    const ConvShape shape = square_filter({2, 70, 9, 9}, 3, 1);
    std::mt19937 random(5);
    const Tensors given = eighths(shape, random);
    const ConvProblem problem{shape, DType::bf16, Format::nhwc};
    const StoredTensor src = stored(given.src, src_extents(shape), problem, Fence::after);
    const StoredTensor diff_dst = stored(given.diff_dst, dst_extents(shape), problem, Fence::after);
    StoredTensor diff_weights(weights_extents(shape), DType::f32, Format::blocked, Fence::after);
    diff_weights.fill(kUntouched);
    const auto gradient =
        depthwise_weights_pass({.shape = shape, .dtype = problem.dtype, .layout = problem.layout});
    gradient->write({.src = src.data(), .diff_dst = diff_dst.data(), .result = diff_weights.data()},
                    scratch({gradient->scratch_bytes(), Fence::after}));
    const ConvProblem in_float{shape, DType::f32, Format::nhwc};
    CHECK(diff_weights.read() == expected(in_float, given, false).diff_weights);
    CHECK(diff_weights.padding_is(std::byte{0}));
}

}  // namespace
}  // namespace dlprim
