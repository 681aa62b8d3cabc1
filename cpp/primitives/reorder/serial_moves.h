// What one thread does of a copy, where kernels (moves/move_kernel.h, rows/row_kernel.h) take no
// more than tiles or rows: matrices are walked through in an order that keeps lines in the caches,
// and rows are converted or grouped without a thought about which kernel does it.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "moves/move_kernel.h"

namespace dlprim {

// Where rows begin, in bytes from the first: at one distance, or where a list says.
struct RowPlaces {
    std::int64_t stride = 0;
    const std::int64_t* list = nullptr;

    // What a pointer to the first becomes; lists are moved on themselves.
    std::int64_t offset(std::int64_t row) const { return list == nullptr ? row * stride : 0; }
};

// `tile` says how units are moved; all bytes are those of results, as in a MoveSpec.
struct TransposedMatrix {
    MoveSpec tile = {};
    const char* src = nullptr;
    char* dst = nullptr;
    RowPlaces src_rows = {};
    RowPlaces dst_rows = {};
    std::int64_t src_bytes = 0;  // of a row
    std::int64_t dst_bytes = 0;
    // Few rows of src at a time, as hardware fetches them from memory; else neighbours in dst
    // follow each other.
    bool goes_across = false;
    // The same for so many matrices, and bytes from one to the next on either side.
    std::int64_t count = 1;
    std::int64_t src_step = 0;
    std::int64_t dst_step = 0;
};

void transpose(const TransposedMatrix& matrix);

// Rows to words of neighbouring rows, the last of which may lack some; strides are bytes.
struct GroupedRows {
    DType from = DType::f32;
    DType to = DType::f32;
    const void* src = nullptr;
    std::int64_t src_row = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    void* dst = nullptr;
    std::int64_t dst_row = 0;
};

void group(const GroupedRows& it);

struct ConvertedRows {
    const void* src = nullptr;
    std::int64_t src_row = 0;
    void* dst = nullptr;
    std::int64_t dst_row = 0;
    std::int64_t rows = 1;
    std::int64_t columns = 0;
};

void round_rows(const ConvertedRows& it);  // from float32 to bfloat16
void widen_rows(const ConvertedRows& it);  // the reverse

inline void round_row(const float* src, std::uint16_t* dst, std::int64_t count) {
    round_rows({.src = src, .dst = dst, .columns = count});
}

inline void widen_row(const std::uint16_t* src, float* dst, std::int64_t count) {
    widen_rows({.src = src, .dst = dst, .columns = count});
}

}  // namespace dlprim
