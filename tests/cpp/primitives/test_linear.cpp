#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/layers/activation_backward.h"
#include "primitives/linear/linear.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using Tensor = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Small integers: every order of summation gives the same float32.
Tensor integers(std::int64_t elements, std::uint32_t seed) {
    std::minstd_rand random(seed);
    Tensor tensor(static_cast<std::size_t>(elements));
    for (float& value : tensor) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    return tensor;
}

Tensor unwritten(std::int64_t elements) { return Tensor(static_cast<std::size_t>(elements), kNaN); }

std::vector<LinearShape> shapes() {
    return {
        {1, 1, 1},
        {2, 3, 4},
        {17, 13, 19},
        {1, 100, 10},
        {100, 1, 1},
        // around the blocks of rows and columns and the strips of the packing
        {63, 15, 64},
        {64, 16, 65},
        {65, 17, 63},
        {130, 64, 129},
        {3, 1025, 5},
        {1030, 5, 7},
    };
}

LinearSpec plain(const LinearShape& shape, Activation activation, bool bias) {
    return {.shape = shape, .layout = Format::nhwc, .activation = activation, .bias = bias};
}

Tensor packed_weights(const LinearShape& shape, const Tensor& weights) {
    Tensor packed = unwritten(2 * linear_weights_size(shape, DType::f32));
    const auto forms = linear_forms(shape, DType::f32, DType::f32, Format::nhwc);
    for (const char* const name : {"weights", "backward_weights"}) {
        const TensorForm& form = form_of(forms, name);
        const bool second = form.name == "backward_weights";
        reorder(form.plain, weights.data(), form.packed,
                packed.data() + (second ? form.packed.elements() : 0));
    }
    return packed;
}

Tensor run_forward(const LinearShape& shape, const Tensor& src, const Tensor& weights,
                   const Tensor* bias, Activation activation) {
    Tensor dst = unwritten(shape.N * shape.K);
    const Tensor packed = packed_weights(shape, weights);
    Linear(plain(shape, activation, bias != nullptr))
        .forward({.src = src.data(),
                  .weights = packed.data(),
                  .bias = bias == nullptr ? nullptr : bias->data(),
                  .dst = dst.data()});
    return dst;
}

struct Gradients {
    Tensor src;
    Tensor weights;
    Tensor bias;
};

double at(const Tensor& tensor, std::int64_t index) {
    return tensor[static_cast<std::size_t>(index)];
}

Tensor expected_forward(const LinearShape& shape, const Tensor& src, const Tensor& weights,
                        const Tensor* bias, Activation activation) {
    Tensor dst;
    for (std::int64_t n = 0; n < shape.N; ++n) {
        for (std::int64_t k = 0; k < shape.K; ++k) {
            double sum = bias == nullptr ? 0 : at(*bias, k);
            for (std::int64_t c = 0; c < shape.C; ++c) {
                sum += at(src, n * shape.C + c) * at(weights, k * shape.C + c);
            }
            if (activation == Activation::relu) sum = std::max(sum, 0.0);
            dst.push_back(static_cast<float>(sum));
        }
    }
    return dst;
}

Gradients expected_backward(const LinearShape& shape, const Tensor& diff_dst, const Tensor& src,
                            const Tensor& weights) {
    std::vector<double> diff_src(src.size());
    std::vector<double> diff_weights(weights.size());
    std::vector<double> diff_bias(static_cast<std::size_t>(shape.K));
    for (std::int64_t n = 0; n < shape.N; ++n) {
        for (std::int64_t k = 0; k < shape.K; ++k) {
            const double diff = at(diff_dst, n * shape.K + k);
            diff_bias[static_cast<std::size_t>(k)] += diff;
            for (std::int64_t c = 0; c < shape.C; ++c) {
                const auto nc = static_cast<std::size_t>(n * shape.C + c);
                const auto kc = static_cast<std::size_t>(k * shape.C + c);
                diff_src[nc] += diff * double{weights[kc]};
                diff_weights[kc] += diff * double{src[nc]};
            }
        }
    }
    return {Tensor(diff_src.begin(), diff_src.end()),
            Tensor(diff_weights.begin(), diff_weights.end()),
            Tensor(diff_bias.begin(), diff_bias.end())};
}

Gradients run_backward(const LinearShape& shape, const Tensor& diff_dst, const Tensor& src,
                       const Tensor& weights, const Tensor* dst) {
    const Activation activation = dst == nullptr ? Activation::none : Activation::relu;
    const Linear linear(plain(shape, activation, false));
    Gradients diff{unwritten(shape.N * shape.C), {}, unwritten(shape.K)};
    Tensor passed = diff_dst;
    linear.backward_activation({.diff_dst = passed.data(),
                                .saved = dst == nullptr ? nullptr : dst->data(),
                                .out = passed.data(),
                                .diff_bias = diff.bias.data()});
    const Tensor packed = packed_weights(shape, weights);
    const std::int64_t size = linear_weights_size(shape, DType::f32);
    linear.backward_data(passed.data(), packed.data() + size, diff.src.data());
    Tensor diff_weights = unwritten(size);
    linear.backward_weights(src.data(), passed.data(), DType::f32, diff_weights.data());
    diff.weights = unwritten(shape.K * shape.C);
    const auto forms = linear_forms(shape, DType::f32, DType::f32, Format::nhwc);
    const TensorForm& form = form_of(forms, "diff_weights");
    reorder(form.packed, diff_weights.data(), form.plain, diff.weights.data());
    return diff;
}

void check_equal(const Gradients& left, const Gradients& right) {
    CHECK(left.src == right.src);
    CHECK(left.weights == right.weights);
    CHECK(left.bias == right.bias);
}

TEST_CASE("forward is src * weights^T + bias, then the activation") {
    for (const LinearShape& shape : shapes()) {
        const Tensor src = integers(shape.N * shape.C, 1);
        const Tensor weights = integers(shape.K * shape.C, 2);
        const Tensor bias = integers(shape.K, 3);
        for (const Tensor* const with_bias : {static_cast<const Tensor*>(nullptr), &bias}) {
            for (const Activation activation : {Activation::none, Activation::relu}) {
                CHECK(run_forward(shape, src, weights, with_bias, activation) ==
                      expected_forward(shape, src, weights, with_bias, activation));
            }
        }
    }
}

TEST_CASE("backward gives the gradients of src, weights and bias") {
    for (const LinearShape& shape : shapes()) {
        const Tensor src = integers(shape.N * shape.C, 1);
        const Tensor weights = integers(shape.K * shape.C, 2);
        const Tensor diff_dst = integers(shape.N * shape.K, 3);
        check_equal(run_backward(shape, diff_dst, src, weights, nullptr),
                    expected_backward(shape, diff_dst, src, weights));
    }
}

TEST_CASE("backward through relu lets the gradient pass where the result is positive or NaN") {
    const LinearShape shape{20, 30, 40};
    const Tensor src = integers(shape.N * shape.C, 1);
    const Tensor weights = integers(shape.K * shape.C, 2);
    const Tensor diff_dst = integers(shape.N * shape.K, 3);
    Tensor dst = integers(shape.N * shape.K, 4);
    dst[0] = kNaN;
    Tensor passed = diff_dst;
    for (std::size_t i = 0; i < dst.size(); ++i) {
        if (dst[i] <= 0) passed[i] = 0;
    }
    check_equal(run_backward(shape, diff_dst, src, weights, &dst),
                expected_backward(shape, passed, src, weights));
}

TEST_CASE("any extent may be zero") {
    for (const LinearShape& shape :
         {LinearShape{0, 3, 4}, LinearShape{2, 0, 4}, LinearShape{2, 3, 0}, LinearShape{0, 0, 0}}) {
        const Tensor src = integers(shape.N * shape.C, 1);
        const Tensor weights = integers(shape.K * shape.C, 2);
        const Tensor bias = integers(shape.K, 3);
        const Tensor diff_dst = integers(shape.N * shape.K, 4);
        CHECK(run_forward(shape, src, weights, &bias, Activation::relu) ==
              expected_forward(shape, src, weights, &bias, Activation::relu));
        check_equal(run_backward(shape, diff_dst, src, weights, nullptr),
                    expected_backward(shape, diff_dst, src, weights));
    }
}

TEST_CASE("a layout alone is that of its form") {
    for (const LinearShape& shape : shapes()) {
        for (const Format format : {Format::blocked, Format::nhwc}) {
            for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
                for (const TensorForm& form : linear_forms(shape, dtype, DType::f32, format)) {
                    const std::string& name = form.name;
                    if (name.ends_with("bias") || name == "scale" || name.starts_with("narrow"))
                        continue;
                    const DType type = form.packed.dtype;
                    CHECK(linear_layout(shape, format, name, type) == form.packed);
                }
            }
        }
    }
}

TEST_CASE("the bits do not depend on the number of threads") {
    const LinearShape shape{150, 170, 190};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    Tensor src = integers(shape.N * shape.C, 1);
    Tensor weights = integers(shape.K * shape.C, 2);
    Tensor diff_dst = integers(shape.N * shape.K, 3);
    for (Tensor* const tensor : {&src, &weights, &diff_dst}) {
        for (float& value : *tensor) value = normal(random);
    }
    const int before = num_threads();
    set_num_threads(1);
    const Gradients serial = run_backward(shape, diff_dst, src, weights, nullptr);
    for (const int threads : {2, 3, 5}) {
        set_num_threads(threads);
        check_equal(run_backward(shape, diff_dst, src, weights, nullptr), serial);
    }
    set_num_threads(before);
}

}  // namespace
}  // namespace dlprim
