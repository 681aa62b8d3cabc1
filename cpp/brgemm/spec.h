// What a caller asks of a kernel: C[m,n] = epilogue(beta*C + sum_i A_i[m,k] * B_i[k,n]), row-major.
// A spec is a value: it is validated once, compared and hashed as the cache key, and printed as
// the kernel's name. Nothing that the library decides (tile, unrolling, registers) is in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "brgemm/dtype.h"

namespace dlprim {

enum class Addressing : std::uint8_t { address, offset, stride };
enum class Activation : std::uint8_t { none, relu };

std::string_view name_of(Addressing addressing);
std::string_view name_of(Activation activation);
Addressing parse_addressing(const std::string& name);  // throws std::invalid_argument
Activation parse_activation(const std::string& name);  // throws std::invalid_argument

// Applied to the accumulators before the only store, in this order.
struct Epilogue {
    bool bias = false;  // one float per column
    Activation activation = Activation::none;

    friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

struct BrgemmSpec {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t lda = 0;  // elements from row to row; 0 means the row length
    std::int64_t ldb = 0;
    std::int64_t ldc = 0;
    DType dtype = DType::f32;
    bool trans_a = false;  // A stored [k][m]
    int beta = 0;          // 0 (C is never read) or 1
    Addressing addressing = Addressing::stride;
    Epilogue epilogue;

    std::int64_t a_rows() const { return trans_a ? k : m; }
    std::int64_t a_columns() const { return trans_a ? m : k; }

    friend bool operator==(const BrgemmSpec&, const BrgemmSpec&) = default;
};

// The spec with its leading dimensions filled in. Throws std::invalid_argument with the name and
// value of the first field that is out of range.
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
