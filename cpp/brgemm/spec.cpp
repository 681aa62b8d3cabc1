#include "brgemm/spec.h"

#include <array>
#include <stdexcept>
#include <string_view>

namespace dlprim {
namespace {

constexpr std::array<std::string_view, 3> kAddressings = {"address", "offset", "stride"};
constexpr std::array<std::string_view, 3> kScales = {"none", "tensor", "column"};

// Generated code addresses the rows of a tile with 32-bit displacements, at most 31 rows apart.
constexpr std::int64_t kMaxLeadingDimension = std::int64_t{1} << 24;
constexpr std::int64_t kGapColumns = 16;  // whole vectors at every ISA level
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

std::int64_t span(std::int64_t rows, std::int64_t columns, std::int64_t ld, std::int64_t element) {
    return ((rows - 1) * ld + columns) * element;
}

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

std::string types_of(const BrgemmSpec& spec) {
    return std::string(name_of(spec.a_type)) + " x " + std::string(name_of(spec.b_type)) + " -> " +
           std::string(name_of(spec.c_type));
}

void require_types(const BrgemmSpec& spec) {
    const DType c = spec.c_type;
    const bool f32 = spec.a_type == DType::f32 && spec.b_type == DType::f32 && c == DType::f32;
    const bool bf16 = spec.a_type == DType::bf16 && spec.b_type == DType::bf16 &&
                      (c == DType::f32 || c == DType::bf16);
    const bool int8 = is_int8(spec.a_type) && is_int8(spec.b_type);
    const bool int16 = spec.a_type == DType::s16 && spec.b_type == DType::s16;
    if ((f32 || bf16 || int8 || int16) && c != DType::s16) return;
    refuse(
        "no kernel for " + types_of(spec) +
        "; expected float32 x float32 -> float32, bfloat16 x bfloat16 -> float32 or bfloat16, "
        "or uint8 or int8 x uint8 or int8, or int16 x int16 -> int32, float32, bfloat16, uint8 or "
        "int8");
}

void require_agreement(const BrgemmSpec& spec) {
    const bool integers = is_integer(spec.a_type);
    const Epilogue& epilogue = spec.epilogue;
    if (!integers && (spec.zero_point_a || spec.zero_point_b)) {
        refuse("a zero point of " + types_of(spec) + ", which only int8 kernels have");
    }
    if (integers && spec.beta == 1 && spec.c_type != DType::s32) {
        refuse("beta=1 with " + types_of(spec) + ": an int8 kernel adds to C only as int32");
    }
    if (spec.c_type == DType::s32 && epilogue != Epilogue{.int_bias = epilogue.int_bias}) {
        refuse("an epilogue with " + types_of(spec) +
               ": scale, bias, residual and activations are float32, C stays an exact int32; "
               "ask for a float32, bfloat16 or 8-bit C");
    }
    if (epilogue.int_bias && (!integers || spec.beta == 1)) {
        refuse("int_bias with " + types_of(spec) + " and beta=" + std::to_string(spec.beta) +
               ", expected int8 operands and beta=0");
    }
    if (epilogue.residual_scale && !epilogue.residual) {
        refuse("residual_scale without a residual");
    }
    if (epilogue.inner && !(epilogue.residual && integers)) {
        refuse("inner with " + types_of(spec) + ", expected operands of integers and a residual");
    }
    if (epilogue.range && size_of(spec.c_type) != 1) {
        refuse("a range with " + types_of(spec) + ", expected a C of 8 bits");
    }
    const Gaps& gaps = spec.gaps;
    if (gaps != Gaps{} &&
        (gaps.rows < 0 || gaps.planes < 0 || spec.n % kGapColumns != 0 ||
         spec.ldc % (gaps.rows + 1) != 0 || spec.ldc / (gaps.rows + 1) < spec.n)) {
        refuse("gaps of " + std::to_string(gaps.rows) + " rows and " + std::to_string(gaps.planes) +
               " planes with n=" + std::to_string(spec.n) + " and ldc=" + std::to_string(spec.ldc) +
               ", expected no negative ones, n a multiple of 16 and room for the rows in ldc");
    }
    if (gaps != Gaps{} && size_of(spec.c_type) == 1) {
        refuse("gaps with " + types_of(spec) + ", expected a C of 16 or 32 bits");
    }
    if (spec.fetch_rows < 0) refuse("fetch_rows", spec.fetch_rows, "no negative number");
    if (epilogue.relu_mask + spec.prefetch_b + (spec.fetch_rows > 0) > 1) {
        refuse("two of relu_mask, prefetch_b and fetch_rows: one register would hold both");
    }
    if (epilogue.relu_mask && epilogue.activation != Activation::relu) {
        refuse("relu_mask with activation='" + std::string(name_of(epilogue.activation)) +
               "', expected 'relu'");
    }
}

std::int64_t mask_leading(const BrgemmSpec& spec) {
    if (!spec.epilogue.relu_mask) return 0;
    const std::int64_t row_bytes = (spec.n + 7) / 8;
    if (spec.ldmask == 0) return row_bytes;
    if (spec.ldmask < row_bytes || spec.ldmask > kMaxLeadingDimension) {
        refuse("ldmask", spec.ldmask,
               "at least ceil(n / 8) = " + std::to_string(row_bytes) + " and at most 2^24 bytes");
    }
    return spec.ldmask;
}

template <typename Enum, std::size_t count>
Enum parse(const std::array<std::string_view, count>& names, const std::string& what,
           const std::string& name, const char* expected) {
    for (std::size_t i = 0; i < count; ++i) {
        if (name == names[i]) return static_cast<Enum>(i);
    }
    throw std::invalid_argument(what + "='" + name + "', expected " + expected);
}

}  // namespace

std::string_view name_of(Addressing addressing) {
    return kAddressings.at(static_cast<std::size_t>(addressing));
}

std::string_view name_of(Scale scale) { return kScales.at(static_cast<std::size_t>(scale)); }

Addressing parse_addressing(const std::string& name) {
    return parse<Addressing>(kAddressings, "addressing", name, "'stride', 'offset' or 'address'");
}

Activation parse_activation(const std::string& name) {
    return parse<Activation>(kActivationNames, "activation", name,
                             "None, 'relu', 'relu6', 'sigmoid', 'hardsigmoid', 'tanh', 'gelu', "
                             "'gelu_tanh', 'swish' or 'hardswish'");
}

Scale parse_scale(const std::string& name) {
    return parse<Scale>(kScales, "scale", name, "None, 'tensor' or 'column'");
}

BrgemmSpec validated(BrgemmSpec spec) {
    require_extent("m", spec.m);
    require_extent("n", spec.n);
    require_extent("k", spec.k);
    if (spec.lda == 0) spec.lda = spec.a_columns();
    spec.lda = leading("lda", spec.lda, spec.sliding_a ? 1 : spec.a_columns());
    spec.ldb = leading("ldb", spec.ldb, spec.n);
    spec.ldc = leading("ldc", spec.ldc, spec.n);
    if (spec.beta != 0 && spec.beta != 1) refuse("beta", spec.beta, "0 or 1");
    spec.ldmask = mask_leading(spec);
    require_types(spec);
    require_agreement(spec);
    return spec;
}

std::string to_string(const BrgemmSpec& spec) {
    const auto short_name = [](DType dtype) {
        constexpr std::array<const char*, 6> names = {"f32", "bf16", "s32", "s8", "u8", "s16"};
        return std::string(names.at(static_cast<std::size_t>(dtype)));
    };
    std::string text = short_name(spec.a_type);
    if (spec.a_type != DType::f32) {
        text += short_name(spec.b_type) + "_" + short_name(spec.c_type);
    }
    text += "_m" + std::to_string(spec.m) + "n" + std::to_string(spec.n) + "k" +
            std::to_string(spec.k) + "_lda" + std::to_string(spec.lda) + "_ldb" +
            std::to_string(spec.ldb) + "_ldc" + std::to_string(spec.ldc);
    if (spec.trans_a) text += "_transa";
    text += "_" + std::string(name_of(spec.addressing));
    text += "_beta" + std::to_string(spec.beta);
    if (spec.zero_point_a) text += "_zpa";
    if (spec.zero_point_b) text += "_zpb";
    const Epilogue& epilogue = spec.epilogue;
    if (epilogue.int_bias) text += "_intbias";
    if (epilogue.scale != Scale::none) text += "_scale" + std::string(name_of(epilogue.scale));
    if (epilogue.bias) text += "_bias";
    if (epilogue.inner) text += "_inner";
    if (epilogue.residual) text += epilogue.residual_scale ? "_scaledresidual" : "_residual";
    if (epilogue.activation != Activation::none) {
        text += "_" + std::string(name_of(epilogue.activation));
    }
    if (epilogue.range) text += "_range";
    if (epilogue.relu_mask) text += "_mask" + std::to_string(spec.ldmask);
    if (spec.gaps != Gaps{}) {
        text += "_gaps" + std::to_string(spec.gaps.rows) + "x" + std::to_string(spec.gaps.planes);
    }
    if (spec.sliding_a) text += "_sliding";
    if (spec.prefetch_a || spec.prefetch_b || spec.prefetch_c) {
        text += std::string("_prefetch") + (spec.prefetch_a ? "a" : "") +
                (spec.prefetch_b ? "b" : "") + (spec.prefetch_c ? "c" : "");
    }
    if (spec.fetch_rows > 0) text += "_fetch" + std::to_string(spec.fetch_rows);
    return text;
}

std::int64_t span_a(const BrgemmSpec& spec) {
    if (spec.trans_a) return span(spec.words(), spec.m, spec.lda, 4);
    return span(spec.m, spec.k, spec.lda, size_of(spec.a_type));
}

std::int64_t span_b(const BrgemmSpec& spec) { return span(spec.words(), spec.n, spec.ldb, 4); }

std::int64_t span_c(const BrgemmSpec& spec) {
    return span(spec.m, spec.n, spec.ldc, size_of(spec.c_type));
}

}  // namespace dlprim

std::size_t std::hash<dlprim::BrgemmSpec>::operator()(
    const dlprim::BrgemmSpec& spec) const noexcept {
    std::size_t seed = 0;
    const auto mix = [&seed](auto value) {
        seed ^= std::hash<std::int64_t>{}(static_cast<std::int64_t>(value)) +
                0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
    };
    const auto mix_all = [&mix](auto... values) { (mix(values), ...); };
    mix_all(spec.m, spec.n, spec.k, spec.lda, spec.ldb, spec.ldc, spec.ldmask, spec.fetch_rows);
    mix_all(spec.a_type, spec.b_type, spec.c_type, spec.trans_a, spec.sliding_a, spec.beta,
            spec.addressing, spec.zero_point_a, spec.zero_point_b);
    const dlprim::Epilogue& epilogue = spec.epilogue;
    mix_all(epilogue.int_bias, epilogue.scale, epilogue.bias, epilogue.residual,
            epilogue.residual_scale, epilogue.inner, epilogue.activation, epilogue.range,
            epilogue.relu_mask);
    mix_all(spec.prefetch_a, spec.prefetch_b, spec.prefetch_c, spec.gaps.rows, spec.gaps.planes);
    return seed;
}
