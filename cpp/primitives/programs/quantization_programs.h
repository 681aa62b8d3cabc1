// Numbers to 8 bits and back, x = (q - zero) scale, as ONNX's QuantizeLinear and DequantizeLinear:
// with one scale, or one for each row or column.
#pragma once

#include <map>
#include <string>

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// By name: "quantize_uint8", "dequantize_int8_by_row", "quantize_int8_by_column" and so on.
// Operands are the tensor, scale and zero in float32, and the result; the DType is that of x.
std::map<std::string, void (*)(RowBuilder&, DType)> quantization_programs();

}  // namespace dlprim
