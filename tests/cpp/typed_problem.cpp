#include "typed_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "brgemm/reference.h"

namespace dlprim::testing {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr std::int64_t kLine = 64;  // bytes

std::int64_t drawn(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

float number(std::mt19937_64& random, Values values) {
    if (values == Values::eighths) return static_cast<float>(drawn(random, -8, 8)) / 8;
    return 0.5F + static_cast<float>(drawn(random, 0, (1 << 23) - 1)) / (1 << 24);
}

template <typename T>
T element(const std::byte* array, std::int64_t index) {
    T value;
    std::memcpy(&value, array + index * std::int64_t{sizeof(T)}, sizeof(T));
    return value;
}

float bf16_value(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

double value_of(DType dtype, const std::byte* array, std::int64_t index) {
    switch (dtype) {
        case DType::f32: return element<float>(array, index);
        case DType::bf16: return bf16_value(element<std::uint16_t>(array, index));
        case DType::s32: return element<std::int32_t>(array, index);
        case DType::s8: return element<std::int8_t>(array, index);
        case DType::u8: return element<std::uint8_t>(array, index);
        case DType::s16: return element<std::int16_t>(array, index);
        case DType::f16: break;  // which no product has
    }
    return 0;
}

// The distance of neighbouring values of `dtype` around `value`.
double spacing(DType dtype, double value) {
    if (dtype == DType::s8 || dtype == DType::u8) return 1;
    if (dtype == DType::s32) return 0;
    const int exponent = std::max(value == 0 ? -126 : std::ilogb(value), -126);
    return std::ldexp(1.0, exponent - (dtype == DType::bf16 ? 7 : 23));
}

// Of the rows of C and the gaps between and behind them, in whole cache lines.
std::int64_t plane_bytes(const BrgemmSpec& spec) {
    return (spec.m * spec.ldc * size_of(spec.c_type) + kLine - 1) / kLine * kLine;
}

}  // namespace

GuardedBytes::GuardedBytes(std::int64_t bytes, Fence fence)
    : memory_((bytes + 3) / 4, fence),
      size_(bytes),
      data_(reinterpret_cast<std::byte*>(memory_.data()) +
            (fence == Fence::after ? (bytes + 3) / 4 * 4 - bytes : 0)) {}

TypedProblem::TypedProblem(const BrgemmSpec& spec, std::int64_t batch, Fence fence, Values values,
                           std::uint64_t seed)
    : random_(seed),
      spec_(validated(spec)),
      batch_(batch),
      fence_(fence),
      values_(values),
      a_(make_operand(spec_.a_type, span_a(spec_), spec_.trans_a ? spec_.m : 0, spec_.lda)),
      b_(make_operand(spec_.b_type, span_b(spec_), spec_.n, spec_.ldb)),
      int_bias_(4 * spec_.n, fence),
      scale_(4 * (spec_.epilogue.scale == Scale::tensor ? 1 : spec_.n), fence),
      bias_(4 * spec_.n, fence),
      residual_(span_c(spec_), fence),
      zero_point_a_(static_cast<std::int32_t>(drawn(random_, -200, 200))),
      zero_point_b_(static_cast<std::int32_t>(drawn(random_, -200, 200))),
      zero_point_c_(static_cast<std::int32_t>(drawn(random_, 0, 127))),
      a_ahead_(drawn_ahead(span_a(spec_))),
      b_ahead_(drawn_ahead(span_b(spec_))),
      gap_stride_(spec_.gaps == Gaps{} ? 0 : plane_bytes(spec_) + kLine * drawn(random_, 0, 2)),
      before_(static_cast<std::size_t>(c_bytes())),
      mask_before_(static_cast<std::size_t>((spec_.m - 1) * spec_.ldmask + (spec_.n + 7) / 8),
                   kUntouched) {
    fill(DType::s32, int_bias_.data(), int_bias_.size());
    fill(DType::f32, bias_.data(), bias_.size());
    fill(spec_.c_type, residual_.data(), residual_.size());
    for (std::int64_t i = 0; i < scale_.size() / 4; ++i) {
        const float power = std::ldexp(1.0F, static_cast<int>(drawn(random_, -7, 0)));
        std::memcpy(scale_.data() + 4 * i, &power, 4);
    }
    fill(spec_.c_type, before_.data(), static_cast<std::int64_t>(before_.size()));
    expected_ = before_;
    mask_expected_ = mask_before_;
    reference_brgemm(spec_, args(expected_.data(), mask_expected_.data()));
    // The reference has read C by now; with beta = 0 a kernel must not, so it finds NaN there.
    if (spec_.beta == 1 || (spec_.c_type != DType::f32 && spec_.c_type != DType::bf16)) return;
    for (std::int64_t row = 0; row < spec_.m; ++row) {
        const std::int64_t size = size_of(spec_.c_type);
        std::fill_n(before_.begin() + row * spec_.ldc * size, spec_.n * size, std::byte{0xff});
    }
}

// Of C with the gaps between, behind and apart from its rows.
std::int64_t TypedProblem::c_bytes() const {
    if (spec_.gaps == Gaps{}) return span_c(spec_);
    return spec_.gaps.planes * gap_stride_ + plane_bytes(spec_);
}

std::int64_t TypedProblem::drawn_ahead(std::int64_t span) {
    switch (drawn(random_, 0, 2)) {
        case 0: return drawn(random_, -span, span);
        case 1: return drawn(random_, -20000, 20000);
        default: return static_cast<std::int64_t>(random_());
    }
}

std::string TypedProblem::ahead() const {
    std::string text;
    if (spec_.prefetch_a) text += ", a_ahead " + std::to_string(a_ahead_);
    if (spec_.prefetch_b || spec_.fetch_rows > 0) text += ", b_ahead " + std::to_string(b_ahead_);
    return text;
}

void TypedProblem::fill(DType dtype, std::byte* data, std::int64_t bytes) {
    const std::int64_t size = size_of(dtype);
    for (std::int64_t i = 0; i < bytes / size; ++i) {
        const float real = number(random_, values_);
        std::uint32_t bits = std::bit_cast<std::uint32_t>(real);
        if (dtype == DType::bf16) bits >>= 16;
        if (is_int8(dtype)) {
            const bool extreme = drawn(random_, 0, 7) == 0;
            bits = static_cast<std::uint32_t>(extreme ? drawn(random_, 126, 129) : random_());
        }
        if (dtype == DType::s32 || dtype == DType::s16)
            bits = static_cast<std::uint32_t>(random_());
        std::memcpy(data + i * size, &bits, static_cast<std::size_t>(size));
    }
}

TypedProblem::Operand TypedProblem::make_operand(DType dtype, std::int64_t span,
                                                 std::int64_t packed_columns, std::int64_t ld) {
    Operand operand;
    const bool together = spec_.addressing == Addressing::stride;
    operand.stride = (span + 3) / 4 * 4;
    const std::int64_t blocks = together ? std::min<std::int64_t>(batch_, 1) : batch_;
    for (std::int64_t i = 0; i < blocks; ++i) {
        operand.memory.emplace_back(together ? (batch_ - 1) * operand.stride + span : span, fence_);
        fill(dtype, operand.memory.back().data(), operand.memory.back().size());
    }
    for (std::int64_t i = 0; i < batch_; ++i) {
        const auto block = static_cast<std::size_t>(together ? 0 : i);
        std::byte* const matrix =
            operand.memory[block].data() + (together ? i * operand.stride : 0);
        if (packed_columns > 0) spoil_padding(dtype, matrix, packed_columns, ld);
        operand.addresses.push_back(matrix);
        operand.offsets.push_back(matrix - static_cast<const std::byte*>(operand.addresses[0]));
    }
    return operand;
}

// What stands behind the last element of k in a packed matrix is never used, unless it belongs to
// the row before as well, whose columns reach into the last one where A slides.
void TypedProblem::spoil_padding(DType dtype, std::byte* matrix, std::int64_t columns,
                                 std::int64_t ld) {
    const std::int64_t group = elements_per_word(dtype);
    const std::int64_t size = size_of(dtype);
    std::byte* const row = matrix + (spec_.words() - 1) * ld * 4;
    const std::int64_t shared = spec_.words() > 1 ? std::max<std::int64_t>(columns - ld, 0) : 0;
    for (std::int64_t column = shared; column < columns; ++column) {
        for (std::int64_t i = spec_.k % group; i > 0 && i < group; ++i) {
            std::memset(row + column * 4 + i * size, drawn(random_, 0, 1) == 0 ? 0x7f : 0xff,
                        static_cast<std::size_t>(size));  // NaN as bfloat16
        }
    }
}

const void* TypedProblem::base(const Operand& operand) const {
    if (batch_ == 0) return nullptr;
    if (spec_.addressing == Addressing::address) return operand.addresses.data();
    return operand.addresses[0];
}

BrgemmArgs TypedProblem::args(std::byte* c, std::byte* mask) const {
    return {
        .a = base(a_),
        .b = base(b_),
        .c = c,
        .batch = batch_,
        .stride_a = a_.stride,
        .stride_b = b_.stride,
        .offsets_a = a_.offsets.data(),
        .offsets_b = b_.offsets.data(),
        .scale = reinterpret_cast<const float*>(scale_.data()),
        .bias = reinterpret_cast<const float*>(bias_.data()),
        .residual = residual_.data(),
        .relu_mask = reinterpret_cast<std::uint8_t*>(mask),
        .zero_point_a = zero_point_a_,
        .zero_point_b = zero_point_b_,
        .a_ahead = a_ahead_,
        .b_ahead = b_ahead_,
        .gap_stride = gap_stride_,
        .int_bias = reinterpret_cast<const std::int32_t*>(int_bias_.data()),
        .residual_scale = 0.25F,
        .lowest = spec_.c_type == DType::u8 ? -1.0F * static_cast<float>(zero_point_c_) : -90.5F,
        .highest = static_cast<float>(127 - zero_point_c_),
        .zero_point_c = zero_point_c_,
        .inner_lowest = -20.5F,
        .inner_highest = 17,
        .inner_scale = 1.75F,
        .inner_shift = -3.25F};
}

bool TypedProblem::close(std::int64_t index, const std::byte* actual) const {
    constexpr double smallest_normal = 0x1p-126;
    const double expected = value_of(spec_.c_type, expected_.data(), index);
    const double value = value_of(spec_.c_type, actual, index);
    if (value == expected) return true;
    // AVX512_BF16 takes subnormal results for zero (docs/kernel.md), also what rounds up to a
    // normal.
    if (spec_.c_type == DType::bf16 && std::fabs(expected) <= smallest_normal && value == 0) {
        return true;
    }
    const Activation activation = spec_.epilogue.activation;
    const bool smooth = activation != Activation::none && activation != Activation::relu;
    if (values_ == Values::eighths && !smooth) return false;
    // The activation's own 4 ULP, its oracle's half, one rounding step of a narrow C; and what the
    // order of a sum of positive numbers may change.
    double bound = spec_.c_type == DType::f32 ? 4.5 * spacing(DType::f32, expected)
                                              : spacing(spec_.c_type, expected);
    if (values_ == Values::reals && !is_integer(spec_.a_type)) {
        const auto terms = static_cast<double>(spec_.k * batch_ + 4);
        bound += 2 * std::sqrt(terms) * std::ldexp(std::fabs(expected) + terms, -24);
    }
    return std::fabs(value - expected) <= bound;
}

std::string TypedProblem::mismatch(const Brgemm& kernel) const {
    const GuardedBytes c(static_cast<std::int64_t>(before_.size()), fence_);
    const GuardedBytes mask(static_cast<std::int64_t>(mask_before_.size()), fence_);
    std::copy(before_.begin(), before_.end(), c.data());
    std::copy(mask_before_.begin(), mask_before_.end(), mask.data());
    kernel(args(c.data(), mask.data()));
    const std::int64_t size = size_of(spec_.c_type);
    for (std::int64_t i = 0; i < c.size() / size; ++i) {
        const bool inside = i * size < span_c(spec_) && i % spec_.ldc < spec_.n;
        const bool same = std::memcmp(c.data() + i * size, expected_.data() + i * size,
                                      static_cast<std::size_t>(size)) == 0;
        if (same || (inside && close(i, c.data()))) continue;
        return "C[" + std::to_string(i / spec_.ldc) + ", " + std::to_string(i % spec_.ldc) +
               "] is " + std::to_string(value_of(spec_.c_type, c.data(), i)) + ", expected " +
               std::to_string(value_of(spec_.c_type, expected_.data(), i));
    }
    if (spec_.epilogue.relu_mask && values_ == Values::eighths &&
        !std::equal(mask_expected_.begin(), mask_expected_.end(), mask.data())) {
        return "the relu mask is wrong";
    }
    return "";
}

}  // namespace dlprim::testing
