// What can run a product of matrices: the kernel in many ways, Winograd's algorithm, sums along the
// rows of one matrix where the other one has a few, and the row engine; with what each is expected
// to take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "primitives/mapping/product_ways.h"
#include "primitives/mapping/strided_product.h"
#include "primitives/products/narrow_pass.h"
#include "primitives/products/winograd_product.h"

namespace dlprim {

// By the kernel where it has a way, else by Winograd's algorithm or sums along rows where it has
// such a pass, else by rows.
struct ProductOption {
    double cycles = 0;
    std::optional<ProductWay> way = {};
    std::optional<WinogradProduct> winograd = {};
    std::optional<NarrowPass> narrow = {};
    bool ends = false;  // the end of the product is part of it
};

// The model's choice first, then the kernel's ways from the cheapest on, then what else there is.
// Throws std::invalid_argument where the kernel does not multiply such bytes.
std::vector<ProductOption> product_options(const StridedProduct& product);

std::string to_string(const ProductOption& option, const StridedProduct& product);

}  // namespace dlprim
