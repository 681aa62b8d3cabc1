// Numbers to 8 bits and back, x = (q - zero) scale, as ONNX's QuantizeLinear and DequantizeLinear:
// with one scale, or one for each row or column. Operands are the tensor, scale and zero in
// float32, and the result; the type of a program is that of x.
#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

RowValue single(RowBuilder& row) { return row.scalar(); }
RowValue by_row(RowBuilder& row) { return row.per_row(); }
RowValue by_column(RowBuilder& row) { return row.column(); }

// The nearest float to x / scale, where it is no larger than 2^20: a reciprocal for each scale, and
// two steps for each element that take its rounding back, are a third of the time of a division.
RowValue quotient(RowValue x, RowValue scale) {
    constexpr float kFar = 1 << 20;  // where every result is saturated
    constexpr float kLarge = 0x1p64F, kSmall = 0x1p-64F;
    // Both are moved to where neither products nor reciprocals overflow or are subnormal.
    const RowValue up = select(scale < kSmall, kLarge, 1.0F);
    const RowValue factor = select(kLarge < scale, kSmall, up);
    const RowValue divisor = scale * factor;
    const RowValue most = kFar * divisor;
    const RowValue kept = smaller(most, larger(-most, x * factor));
    const RowValue reciprocal = 1.0F / divisor;
    const RowValue near = kept * reciprocal;
    return multiply_add(multiply_add(-near, divisor, kept), reciprocal, near);
}

// The zero is added to a whole number, as it would else move halves to the other side.
template <DType kind, RowValue (*parameter)(RowBuilder&)>
void quantize(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), scale = parameter(row), zero = parameter(row);
    row.store(kind, nearest(quotient(x, scale)) + zero);
}

template <DType kind, RowValue (*parameter)(RowBuilder&)>
void dequantize(RowBuilder& row, DType dtype) {
    const RowValue q = row.tensor(kind), scale = parameter(row), zero = parameter(row);
    row.store(dtype, (q - zero) * scale);
}

}  // namespace

RowFamily quantization_programs() {
    constexpr DType u8 = DType::u8, s8 = DType::s8;
    return {{"quantize_uint8", quantize<u8, single>},
            {"quantize_uint8_by_row", quantize<u8, by_row>},
            {"quantize_uint8_by_column", quantize<u8, by_column>},
            {"quantize_int8", quantize<s8, single>},
            {"quantize_int8_by_row", quantize<s8, by_row>},
            {"quantize_int8_by_column", quantize<s8, by_column>},
            {"dequantize_uint8", dequantize<u8, single>},
            {"dequantize_uint8_by_row", dequantize<u8, by_row>},
            {"dequantize_uint8_by_column", dequantize<u8, by_column>},
            {"dequantize_int8", dequantize<s8, single>},
            {"dequantize_int8_by_row", dequantize<s8, by_row>},
            {"dequantize_int8_by_column", dequantize<s8, by_column>}};
}

}  // namespace dlprim
