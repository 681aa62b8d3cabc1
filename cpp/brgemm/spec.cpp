#include "brgemm/spec.h"

#include <array>
#include <stdexcept>
#include <string_view>

namespace dlprim {
namespace {

constexpr std::array<std::string_view, 3> kAddressings = {"address", "offset", "stride"};
constexpr std::array<std::string_view, 2> kActivations = {"none", "relu"};

// Generated code addresses the rows of a tile with 32-bit displacements, at most 31 rows apart.
constexpr std::int64_t kMaxLeadingDimension = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExtent = (std::int64_t{1} << 31) - 1;

[[noreturn]] void refuse(const std::string& field, std::int64_t value,
                         const std::string& expected) {
    throw std::invalid_argument(field + "=" + std::to_string(value) + ", expected " + expected);
}

void require_extent(const char* field, std::int64_t value) {
    if (value < 1 || value > kMaxExtent) refuse(field, value, "an integer from 1 to 2^31 - 1");
}

std::int64_t leading(const char* field, std::int64_t value, std::int64_t row_length) {
    if (value == 0) value = row_length;
    if (value < row_length) {
        refuse(field, value, "at least the row length " + std::to_string(row_length));
    }
    if (value > kMaxLeadingDimension) refuse(field, value, "at most 2^24 = 16777216 elements");
    return value;
}

std::int64_t span(std::int64_t rows, std::int64_t columns, std::int64_t ld, DType dtype) {
    return ((rows - 1) * ld + columns) * size_of(dtype);
}

}  // namespace

std::string_view name_of(Addressing addressing) {
    return kAddressings.at(static_cast<std::size_t>(addressing));
}

std::string_view name_of(Activation activation) {
    return kActivations.at(static_cast<std::size_t>(activation));
}

Addressing parse_addressing(const std::string& name) {
    for (std::size_t i = 0; i < kAddressings.size(); ++i) {
        if (name == kAddressings[i]) return static_cast<Addressing>(i);
    }
    throw std::invalid_argument("addressing='" + name +
                                "', expected 'stride', 'offset' or 'address'");
}

Activation parse_activation(const std::string& name) {
    for (std::size_t i = 0; i < kActivations.size(); ++i) {
        if (name == kActivations[i]) return static_cast<Activation>(i);
    }
    throw std::invalid_argument("activation='" + name + "', expected None or 'relu'");
}

BrgemmSpec validated(BrgemmSpec spec) {
    require_extent("m", spec.m);
    require_extent("n", spec.n);
    require_extent("k", spec.k);
    spec.lda = leading("lda", spec.lda, spec.a_columns());
    spec.ldb = leading("ldb", spec.ldb, spec.n);
    spec.ldc = leading("ldc", spec.ldc, spec.n);
    if (spec.beta != 0 && spec.beta != 1) refuse("beta", spec.beta, "0 or 1");
    return spec;
}

std::string to_string(const BrgemmSpec& spec) {
    std::string text = "f32_m" + std::to_string(spec.m) + "n" + std::to_string(spec.n) + "k" +
                       std::to_string(spec.k) + "_lda" + std::to_string(spec.lda) + "_ldb" +
                       std::to_string(spec.ldb) + "_ldc" + std::to_string(spec.ldc);
    if (spec.trans_a) text += "_transa";
    text += "_" + std::string(name_of(spec.addressing));
    text += "_beta" + std::to_string(spec.beta);
    if (spec.epilogue.bias) text += "_bias";
    if (spec.epilogue.activation != Activation::none) {
        text += "_" + std::string(name_of(spec.epilogue.activation));
    }
    return text;
}

std::int64_t span_a(const BrgemmSpec& spec) {
    return span(spec.a_rows(), spec.a_columns(), spec.lda, spec.dtype);
}

std::int64_t span_b(const BrgemmSpec& spec) { return span(spec.k, spec.n, spec.ldb, spec.dtype); }

std::int64_t span_c(const BrgemmSpec& spec) { return span(spec.m, spec.n, spec.ldc, spec.dtype); }

}  // namespace dlprim

std::size_t std::hash<dlprim::BrgemmSpec>::operator()(
    const dlprim::BrgemmSpec& spec) const noexcept {
    std::size_t seed = 0;
    const auto mix = [&seed](std::int64_t value) {
        seed ^=
            std::hash<std::int64_t>{}(value) + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
    };
    for (const std::int64_t value : {spec.m, spec.n, spec.k, spec.lda, spec.ldb, spec.ldc}) {
        mix(value);
    }
    mix(static_cast<int>(spec.dtype));
    mix(spec.trans_a);
    mix(spec.beta);
    mix(static_cast<int>(spec.addressing));
    mix(spec.epilogue.bias);
    mix(static_cast<int>(spec.epilogue.activation));
    return seed;
}
