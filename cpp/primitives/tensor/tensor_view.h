// What is known of an array that a formula is compiled for: everything but where it is. So one
// compiled formula serves all arrays that lie alike, and whoever calls it, in C++ or in Python,
// says the same few numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/dtype.h"
#include "lang/ranges.h"

namespace dlprim {

// An array; strides in elements.
struct TensorView {
    std::string name = {};
    DType dtype = DType::f32;
    Shape shape = {};
    std::vector<std::int64_t> strides = {};
    bool is_wide = false;  // int64, of which strides count halves; the dtype is int32 then

    std::int64_t elements() const;
};

// In C order.
TensorView dense_view(std::string name, DType dtype, const Shape& shape);

}  // namespace dlprim
