// What the kernel does to its sums before it stores them, found in the statements behind a product
// that work in place on its result: a bias, then an activation. One that is part of the product
// neither reads nor writes its result again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "primitives/mapping/strided_product.h"

namespace dlprim {

struct FoundEnd {
    ProductEnd end = {};
    std::vector<std::int64_t> strides = {};  // of the bias, along the product's indices
};

// What `next` are one after the other. None where that is anything else, such as a function for
// which the kernel has none that gives the same for every value, NaN included.
std::optional<FoundEnd> end_of(const BoundStatement& product,
                               const std::vector<NextStatement>& next);

}  // namespace dlprim
