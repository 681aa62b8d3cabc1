#include "brgemm/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "jit/element_reference.h"

namespace dlprim {
namespace {

// Where A_i and B_i are, and how their elements lie.
class Operands {
public:
    Operands(const BrgemmSpec& spec, const BrgemmArgs& args)
        : spec_(spec),
          args_(args),
          word_bits_(std::countr_zero(static_cast<unsigned>(elements_per_word(spec.a_type)))) {}

    const void* a(std::int64_t i) const {
        return matrix(args_.a, args_.offsets_a, args_.stride_a, i);
    }
    const void* b(std::int64_t i) const {
        return matrix(args_.b, args_.offsets_b, args_.stride_b, i);
    }
    std::int64_t a_index(std::int64_t row, std::int64_t step) const {
        return spec_.trans_a ? packed(step, row, spec_.lda) : row * spec_.lda + step;
    }
    std::int64_t b_index(std::int64_t step, std::int64_t column) const {
        return packed(step, column, spec_.ldb);
    }

private:
    std::int64_t packed(std::int64_t step, std::int64_t column, std::int64_t ld) const {
        const std::int64_t word = step >> word_bits_;
        return ((word * ld + column) << word_bits_) + (step - (word << word_bits_));
    }

    const void* matrix(const void* base, const std::int64_t* offsets, std::int64_t stride,
                       std::int64_t i) const {
        if (spec_.addressing == Addressing::address) {
            return static_cast<const void* const*>(base)[i];
        }
        const std::int64_t bytes = spec_.addressing == Addressing::offset ? offsets[i] : i * stride;
        return static_cast<const std::byte*>(base) + bytes;
    }

    const BrgemmSpec& spec_;
    const BrgemmArgs& args_;
    int word_bits_;  // a division for each product would be two thirds of the time
};

// Modulo 2^32, as the machine adds.
std::int32_t integer_sum(const BrgemmSpec& spec, const BrgemmArgs& args, std::int64_t row,
                         std::int64_t column) {
    const Operands operands(spec, args);
    const std::int64_t za = spec.zero_point_a ? args.zero_point_a : 0;
    const std::int64_t zb = spec.zero_point_b ? args.zero_point_b : 0;
    std::uint64_t sum = 0;
    if (spec.epilogue.int_bias) sum = static_cast<std::uint64_t>(args.int_bias[column]);
    if (spec.beta == 1) {
        sum = static_cast<std::uint64_t>(
            static_cast<const std::int32_t*>(args.c)[row * spec.ldc + column]);
    }
    for (std::int64_t i = 0; i < args.batch; ++i) {
        for (std::int64_t step = 0; step < spec.k; ++step) {
            const auto a = static_cast<std::int64_t>(
                element_at(spec.a_type, operands.a(i), operands.a_index(row, step)));
            const auto b = static_cast<std::int64_t>(
                element_at(spec.b_type, operands.b(i), operands.b_index(step, column)));
            sum += static_cast<std::uint64_t>((a - za) * (b - zb));
        }
    }
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
}

float float_sum(const BrgemmSpec& spec, const BrgemmArgs& args, std::int64_t row,
                std::int64_t column) {
    const Operands operands(spec, args);
    double sum = spec.beta == 1 ? element_at(spec.c_type, args.c, row * spec.ldc + column) : 0;
    for (std::int64_t i = 0; i < args.batch; ++i) {
        for (std::int64_t step = 0; step < spec.k; ++step) {
            sum += static_cast<double>(
                       element_at(spec.a_type, operands.a(i), operands.a_index(row, step))) *
                   element_at(spec.b_type, operands.b(i), operands.b_index(step, column));
        }
    }
    return static_cast<float>(sum);
}

float finished(const BrgemmSpec& spec, const BrgemmArgs& args, std::int64_t row,
               std::int64_t column, float value) {
    const Epilogue& epilogue = spec.epilogue;
    if (epilogue.scale == Scale::tensor) value *= args.scale[0];
    if (epilogue.scale == Scale::column) value *= args.scale[column];
    if (epilogue.bias) value += args.bias[column];
    if (epilogue.inner) {
        value = value > args.inner_lowest ? value : args.inner_lowest;  // NaN too
        value = std::nearbyint(std::min(value, args.inner_highest)) * args.inner_scale;
        value += args.inner_shift;
    }
    if (epilogue.residual) {
        const float residual = element_at(spec.c_type, args.residual, row * spec.ldc + column);
        value += epilogue.residual_scale ? residual * args.residual_scale : residual;
    }
    if (epilogue.relu_mask) {
        std::uint8_t& byte = args.relu_mask[row * spec.ldmask + column / 8];
        if (column % 8 == 0) byte = 0;
        byte = static_cast<std::uint8_t>(byte | (value <= 0 ? 0 : 1) << column % 8);
    }
    value = static_cast<float>(activated(epilogue.activation, value));
    if (!epilogue.range) return value;
    value = value > args.lowest ? value : args.lowest;  // NaN too
    return std::nearbyint(std::min(value, args.highest)) + static_cast<float>(args.zero_point_c);
}

void write_gaps(const BrgemmSpec& spec, const BrgemmArgs& args) {
    const std::int64_t element = size_of(spec.c_type);
    const std::int64_t distance = spec.ldc / (spec.gaps.rows + 1) * element;
    for (std::int64_t row = 0; row < spec.m; ++row) {
        for (int plane = 0; plane <= spec.gaps.planes; ++plane) {
            for (int gap = plane == 0 ? 1 : 0; gap <= spec.gaps.rows; ++gap) {
                std::memset(static_cast<char*>(args.c) + row * spec.ldc * element +
                                plane * args.gap_stride + gap * distance,
                            0, static_cast<std::size_t>(spec.n * element));
            }
        }
    }
}

}  // namespace

void reference_brgemm(const BrgemmSpec& spec, const BrgemmArgs& args) {
    write_gaps(spec, args);
    for (std::int64_t row = 0; row < spec.m; ++row) {
        for (std::int64_t column = 0; column < spec.n; ++column) {
            const std::int64_t at = row * spec.ldc + column;
            if (spec.c_type == DType::s32) {
                static_cast<std::int32_t*>(args.c)[at] = integer_sum(spec, args, row, column);
                continue;
            }
            const float sum = is_integer(spec.a_type)
                                  ? static_cast<float>(integer_sum(spec, args, row, column))
                                  : float_sum(spec, args, row, column);
            set_element(spec.c_type, args.c, at, finished(spec, args, row, column, sum));
        }
    }
}

}  // namespace dlprim
