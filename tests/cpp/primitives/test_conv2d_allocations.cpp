// A convolution takes its scratch once, as much as it says, and after that nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "allocation_count.h"
#include "primitives/conv/conv2d.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/tensor/cpus.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::allocations;

ConvShape square(std::int64_t C, std::int64_t K, std::int64_t R, std::int64_t stride,
                 std::int64_t groups) {
    return validated({.N = 5,
                      .C = C,
                      .H = 13,
                      .W = 14,
                      .K = K,
                      .R = R,
                      .S = R,
                      .stride_h = stride,
                      .stride_w = stride,
                      .pad_top = R / 2,
                      .pad_bottom = R / 2,
                      .pad_left = R / 2,
                      .pad_right = R / 2,
                      .groups = groups});
}

// Operands and results of zeros, of any pass.
class Tensors {
public:
    explicit Tensors(const ConvSpec& spec)
        : src_(elements(spec, src_blocks(spec.shape), spec.shape.H, spec.shape.W)),
          dst_(elements(spec, dst_blocks(spec.shape), spec.shape.P(), spec.shape.Q())),
          more_(dst_),
          mask_(dst_.size()),
          weights_(static_cast<std::size_t>(packed_weights_size(spec.shape, DType::f32) * 4)),
          diff_weights_(weights_),
          bias_(static_cast<std::size_t>(spec.shape.K)) {}

    void forward(const Conv2d& conv, bool all) {
        conv.forward({.src = src_.data(),
                      .weights = weights_.data(),
                      .bias = bias_.data(),
                      .residual = all ? more_.data() : nullptr,
                      .relu_mask = all ? mask_.data() : nullptr,
                      .dst = dst_.data()});
    }
    void backward_data(const Conv2d& conv) {
        conv.backward_data(dst_.data(), weights_.data(), src_.data());
    }
    void backward_weights(const Conv2d& conv, DType to) {
        conv.backward_weights(src_.data(), dst_.data(), to, diff_weights_.data());
    }
    void backward_relu(const Conv2d& conv) {
        conv.backward_relu({.diff_dst = dst_.data(),
                            .saved = more_.data(),
                            .out = dst_.data(),
                            .diff_bias = bias_.data()});
    }

private:
    using Bytes = std::vector<std::uint8_t>;

    static Bytes elements(const ConvSpec& spec, const ChannelBlocks& blocks, std::int64_t height,
                          std::int64_t width) {
        const std::int64_t image = activation_strides(spec.layout, blocks, height, width).image;
        return Bytes(static_cast<std::size_t>(spec.shape.N * image * 4));
    }

    Bytes src_, dst_, more_, mask_, weights_, diff_weights_;
    std::vector<float> bias_;
};

struct Call {
    std::string name;
    std::int64_t scratch_bytes;  // at most
    std::function<void(const Conv2d&)> run;
};

std::vector<Call> calls_of(const Conv2d& conv, Tensors& it) {
    const auto bytes = [&](PassKind pass) { return conv.scratch_bytes(pass); };
    const bool relu = conv.spec().activation == Activation::relu;
    const DType dtype = conv.spec().dtype;
    return {{"forward", bytes(PassKind::forward), [&](auto& c) { it.forward(c, false); }},
            {"fused", bytes(PassKind::forward), [&, relu](auto& c) { it.forward(c, relu); }},
            {"data", bytes(PassKind::backward_data), [&](auto& c) { it.backward_data(c); }},
            {"weights", bytes(PassKind::backward_weights),
             [&](auto& c) { it.backward_weights(c, DType::f32); }},
            {"narrow weights", bytes(PassKind::backward_weights),
             [&, dtype](auto& c) { it.backward_weights(c, dtype); }},
            {"relu", conv.relu_scratch_bytes(), [&](auto& c) { it.backward_relu(c); }}};
}

// A first call plans and takes scratch, a second one takes nothing.
void check_calls(const ConvSpec& spec) {
    Tensors tensors(spec);
    for (const Call& call : calls_of(Conv2d(spec), tensors)) {
        CAPTURE(call.name);
        const Conv2d conv(spec);
        const std::int64_t before = allocations().scratch_bytes;
        call.run(conv);
        CHECK(allocations().scratch_bytes - before <= call.scratch_bytes + 3);
        const std::int64_t calls = allocations().calls;
        call.run(conv);
        CHECK(allocations().calls - calls == 0);
    }
}

TEST_CASE("no pass allocates in its second call, nor more than it says in its first") {
    const int before = num_threads();
    for (const int threads : {1, 3}) {
        set_num_threads(threads);
        for (const ConvShape& shape :
             {square(70, 75, 3, 1, 1), square(70, 33, 1, 1, 1), square(64, 96, 1, 2, 1),
              square(3, 40, 7, 2, 1), square(12, 20, 3, 1, 4), square(96, 96, 3, 1, 96),
              square(35, 35, 5, 2, 35), square(20, 20, 2, 3, 20), square(300, 40, 1, 2, 1),
              square(300, 520, 1, 2, 1)}) {
            for (const DType dtype : {DType::f32, DType::bf16}) {
                for (const Format layout : {Format::blocked, Format::nhwc}) {
                    for (const Activation activation : {Activation::relu, Activation::tanh}) {
                        CAPTURE(shape.C);
                        CAPTURE(shape.R);
                        CAPTURE(name_of(dtype));
                        CAPTURE(name_of(activation));
                        check_calls({.shape = shape,
                                     .dtype = dtype,
                                     .layout = layout,
                                     .activation = activation,
                                     .bias = true});
                    }
                }
            }
        }
    }
    set_num_threads(before);
}

// As calls do from time to time.
TEST_CASE("counting the CPUs again allocates nothing") {
    usable_cpus();
    const std::int64_t calls = allocations().calls;
    usable_cpus();
    CHECK(allocations().calls == calls);
}

}  // namespace
}  // namespace dlprim
