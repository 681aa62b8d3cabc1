// What a caller asks of a kernel: C[m,n] = epilogue(beta*C + sum_i A_i[m,k] * B_i[k,n]), row-major.
// A spec is a value: it is validated once, compared and hashed as the cache key, and printed as
// the kernel's name. Nothing that the library decides (tile, unrolling, registers) is in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "jit/activation.h"
#include "jit/dtype.h"

namespace dlprim {

enum class Addressing : std::uint8_t { address, offset, stride };
enum class Scale : std::uint8_t { none, tensor, column };

std::string_view name_of(Addressing addressing);
std::string_view name_of(Scale scale);
Addressing parse_addressing(const std::string& name);  // throws std::invalid_argument
Activation parse_activation(const std::string& name);  // throws std::invalid_argument
Scale parse_scale(const std::string& name);            // throws std::invalid_argument

// Applied to the accumulators, as float32, before the only store, in this order; then they are
// converted to the type of C.
struct Epilogue {
    bool int_bias = false;  // of integers: one int32 per column, what the exact sums begin with
    Scale scale = Scale::none;
    bool bias = false;            // one float per column
    bool residual = false;        // an m x n matrix of C's type and leading dimension
    bool residual_scale = false;  // which it is multiplied by
    // What the residual is added to is kept between bounds and rounded before, to integers that are
    // then scaled and shifted: a result in 8 bits of its own, of which nothing is stored.
    bool inner = false;
    Activation activation = Activation::none;
    // Of an 8-bit C: BrgemmArgs has bounds, and a zero point that is added to what they leave once
    // that is rounded.
    bool range = false;
    // With relu: a bit per element, 1 where the input of relu was not <= 0. Column j is bit j % 8
    // of byte j / 8 of a row; the bits beyond n of a row's last byte are 0.
    bool relu_mask = false;

    friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

// Zeros that a kernel writes around the caches beside C, each tile its own, while the next one is
// computed: after every row of C `rows` rows of n zeros at equal distances, and the same again with
// a row in the place of C's `planes` times, BrgemmArgs::gap_stride bytes apart.
struct Gaps {
    int rows = 0;
    int planes = 0;

    friend bool operator==(const Gaps&, const Gaps&) = default;
};

struct BrgemmSpec {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    // Elements from row to row, 0 for the row length; columns where an operand is packed.
    std::int64_t lda = 0;
    std::int64_t ldb = 0;
    std::int64_t ldc = 0;
    // float32 for all; or bfloat16 A and B; or uint8 or int8 each of A and B; or int16 A and B,
    // which are what 8-bit ones become where nothing multiplies bytes.
    DType a_type = DType::f32;
    DType b_type = DType::f32;
    DType c_type = DType::f32;
    bool trans_a = false;    // A stored [k][m], packed like B where B is packed
    bool sliding_a = false;  // lda may be below the row length: A is a window that slides
    int beta = 0;            // 0 (C is never read) or 1
    Addressing addressing = Addressing::stride;
    bool zero_point_a = false;  // integers: A - zero_point_a and B - zero_point_b are multiplied
    bool zero_point_b = false;
    Epilogue epilogue = {};
    std::int64_t ldmask = 0;  // bytes from row to row of the relu mask; 0 means ceil(n / 8)
    // For operands that come from memory: each tile fetches what stands BrgemmArgs::a_ahead bytes
    // from its part of A and b_ahead bytes from B into the L2 cache, and the lines of C that it
    // will write, with those of its residual. A prefetch beyond an operand touches nothing.
    bool prefetch_a = false;
    bool prefetch_b = false;
    bool prefetch_c = false;
    // For weights that come from memory: the calls of so many rows of C together fetch what stands
    // from BrgemmArgs::b_ahead bytes behind `b` on, evenly over their products, a line for every
    // line of B that these rows share.
    std::int64_t fetch_rows = 0;
    // Not with tails in n nor an 8-bit C; C and its rows are then aligned to the cache line.
    Gaps gaps = {};

    std::int64_t a_columns() const { return trans_a ? m : k; }
    // Steps along k: words of A, rows of the packed B.
    std::int64_t words() const {
        return (k + elements_per_word(a_type) - 1) / elements_per_word(a_type);
    }

    friend bool operator==(const BrgemmSpec&, const BrgemmSpec&) = default;
};

// The spec with its leading dimensions filled in. Throws std::invalid_argument that names the
// first field that is out of range or does not go with the others.
BrgemmSpec validated(BrgemmSpec spec);

// For example "f32_m64n64k64_lda64_ldb64_ldc64_stride_beta0_bias_relu".
std::string to_string(const BrgemmSpec& spec);

// Extent in bytes of the memory that one A_i, one B_i and C span.
std::int64_t span_a(const BrgemmSpec& spec);
std::int64_t span_b(const BrgemmSpec& spec);
std::int64_t span_c(const BrgemmSpec& spec);

}  // namespace dlprim

template <>
struct std::hash<dlprim::BrgemmSpec> {
    std::size_t operator()(const dlprim::BrgemmSpec& spec) const noexcept;
};
