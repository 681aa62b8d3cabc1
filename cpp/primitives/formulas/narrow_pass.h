// A product of matrices of which one has a few rows or columns, as sums along the other one's rows:
// a kernel call would use a few lanes of every vector, or has the matrix packed to be used once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "primitives/mapping/strided_product.h"
#include "primitives/programs/narrow_product.h"

namespace dlprim {

// Vectors at most: with more, the kernel does more per load.
inline constexpr std::int64_t kFewVectors = 7;

class NarrowPass {
public:
    // None where it is no such product of float32, or does not lie as the programs walk.
    static std::optional<NarrowPass> of(const StridedProduct& product);

    double cycles() const { return cycles_; }

    // First elements of the arrays, as the statement has them. The same bits for any number of
    // threads.
    void run(const void* a, const void* b, void* c) const;
    std::string described() const;

private:
    NarrowPass(const StridedProduct& product, const NarrowShape& shape, bool exchanges);

    StridedProduct product_;  // A is the matrix, B the vectors
    bool is_exchanged_;
    NarrowProduct narrow_;
    std::int64_t count_ = 1;  // of products apart from each other
    double cycles_ = 0;
};

}  // namespace dlprim
