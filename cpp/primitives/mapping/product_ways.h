// All ways in which the kernel can go through a product, with the cycles that each is expected to
// take: of every class each index that can be the kernel's, of the product and of the transposed
// one, each operand in place and packed.
#pragma once

#include <vector>

#include "jit/machine.h"
#include "primitives/mapping/product_walk.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim {

// From the cheapest on. None where there is no sum that the kernel could go along, or where C is
// added to and not as the kernel writes.
std::vector<ProductWay> product_ways(const StridedProduct& product, const Machine& machine);

}  // namespace dlprim
