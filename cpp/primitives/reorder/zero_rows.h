// Rows of zeros: what a result holds where no product reaches it. A tensor that exceeds the caches
// is better written around them, or every line would first be read from memory.
#pragma once

#include <cstdint>

namespace dlprim {

struct ZeroRows {
    char* first = nullptr;
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;
    std::int64_t stride = 0;  // bytes from row to row
    bool around_caches = false;
};

void write_zeros(const ZeroRows& zeros);

// Orders stores around the caches before all later ones; once after the last of them, on the
// thread that made them.
void finish_zeros();

}  // namespace dlprim
