// Linear and recurrent layers take their scratch once, as much as they say, and after that nothing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "allocation_count.h"
#include "primitives/linear/linear.h"
#include "primitives/rnn/rnn.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::allocations;

// Zeros, more than any operand below has.
struct Operands {
    std::vector<float> values = std::vector<float>(std::size_t{1} << 17);
    float* data() { return values.data(); }
};

// Scratch that `call` takes when it runs for the first time; when it runs again, nothing is taken.
template <class Call>
std::int64_t scratch_taken_once(const Call& call) {
    const std::int64_t before = allocations().scratch_bytes;
    call();
    const std::int64_t taken = allocations().scratch_bytes - before;
    const std::int64_t calls = allocations().calls;
    call();
    CHECK(allocations().calls == calls);
    return taken;
}

TEST_CASE("a linear layer that ran before takes no memory") {
    const int threads = num_threads();
    set_num_threads(1);
    Operands src, weights, dst, bias;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const LinearShape& shape : {LinearShape{70, 100, 90}, LinearShape{130, 100, 1}}) {
            CAPTURE(static_cast<int>(dtype));
            CAPTURE(shape.K);
            const auto layer = [&] {
                return Linear({.shape = shape, .dtype = dtype, .dst_dtype = dtype, .bias = true});
            };
            const Linear forward = layer();
            CHECK(scratch_taken_once([&] {
                      forward.forward({.src = src.data(),
                                       .weights = weights.data(),
                                       .bias = bias.data(),
                                       .dst = dst.data()});
                  }) <= forward.scratch_bytes(PassKind::forward));
            CHECK(scratch_taken_once([&] {
                      forward.backward_data(dst.data(), weights.data(), src.data());
                  }) <= forward.scratch_bytes(PassKind::backward_data));
            CHECK(scratch_taken_once([&] {
                      forward.backward_weights(src.data(), dst.data(), DType::f32, weights.data());
                  }) <= forward.scratch_bytes(PassKind::backward_weights));
        }
    }
    set_num_threads(threads);
}

TEST_CASE("a recurrent layer that ran before takes no memory") {
    const int threads = num_threads();
    set_num_threads(1);
    Operands src, dst, gates, cells, state, weights, transposed, bias;
    std::array<Operands, 5> diff;
    const RnnPackedWeights packed{weights.data(), weights.data(), transposed.data(),
                                  transposed.data(), bias.data()};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        CAPTURE(static_cast<int>(dtype));
        const Rnn rnn({.cell = RnnCell::lstm, .T = 5, .N = 6, .C = 40, .K = 70, .dtype = dtype});
        const RnnSaved saved{.gates = gates.data(), .cells = cells.data()};
        CHECK(scratch_taken_once([&] {
                  rnn.forward({.src = src.data(),
                               .weights = packed,
                               .dst = dst.data(),
                               .h_n = state.data(),
                               .c_n = state.data(),
                               .saved = saved});
              }) <= rnn.forward_scratch_bytes());
        CHECK(scratch_taken_once([&] {
                  rnn.backward({.diff_dst = dst.data(),
                                .weights = packed,
                                .src = src.data(),
                                .dst = dst.data(),
                                .saved = saved,
                                .diff_src = diff[0].data(),
                                .diff_h_0 = diff[1].data(),
                                .diff_c_0 = diff[1].data(),
                                .diff_w_ih = diff[2].data(),
                                .diff_w_hh = diff[3].data(),
                                .diff_b_ih = diff[4].data(),
                                .diff_b_hh = diff[4].data()});
              }) <= rnn.backward_scratch_bytes());
    }
    set_num_threads(threads);
}

}  // namespace
}  // namespace dlprim
