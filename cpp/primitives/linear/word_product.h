// Products of few rows of bytes by weights that stay, on CPUs that do not multiply bytes: the
// weights are words of 16 bits once and for all, which they would otherwise become for every call.
#pragma once

#include <cstdint>
#include <memory>

#include "brgemm/brgemm.h"

namespace dlprim {

struct WordProductShape {
    std::int64_t rows = 0, depth = 0, columns = 0;

    std::int64_t pairs() const { return (depth + 1) / 2; }  // along the sum
    std::int64_t blocks() const { return (columns + kColumns - 1) / kColumns; }

    static constexpr std::int64_t kColumns = 64;  // of a block
};

// Weights are [blocks][pairs][64][2], zeros behind the last column and the last of the sum.
class WordProduct {
public:
    // `zero` is what x stands for 0 with.
    WordProduct(const WordProductShape& shape, std::int16_t zero);

    // dst (rows, columns) = scale of the column times the exact sum of (x - zero) * weights, of x
    // (rows, depth).
    void run(const std::uint8_t* x, const std::int16_t* weights, const float* scale,
             float* dst) const;

private:
    WordProductShape shape_;
    std::int16_t zero_;
    std::shared_ptr<const Brgemm> whole_, last_;  // of a block, of the columns behind; or null
};

}  // namespace dlprim
