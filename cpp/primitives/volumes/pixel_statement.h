// Statements on volumes, index by index, and what they are expected to take.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "primitives/statements/bound_statement.h"
#include "primitives/volumes/volume_grid.h"

namespace dlprim {

class ProductRun;      // products/product_run.h
struct BoundProduct;   // there
struct ProductOption;  // products/product_options.h

// A sum of products of elements of two arrays, an index at a time.
class PixelStatement {
public:
    explicit PixelStatement(DType dtype, DType result);

    struct Steps {
        std::int64_t result = 0;
        std::int64_t a = 0;
        std::int64_t b = 0;
        std::int64_t bias = 0;
    };
    void add(const std::string& name, std::int64_t extent, const Steps& steps);
    void begin(const Steps& at);  // of the arrays, where all indices are 0

    // With a bias where one moves along an index.
    BoundProduct product(bool bias) const;

private:
    BoundStatement statement_;
    std::vector<std::int64_t> bias_ = {};
};

// Of the indices along an axis.
inline std::string name_of_pixel(std::size_t axis) { return std::string(1, "zpq"[axis]); }
inline std::string name_of_tap(std::size_t axis) { return std::string(1, "trs"[axis]); }

// The cheapest option, and what it is expected to take; of what is no product of matrices by rows,
// whose programs go along an index of so many values.
struct ProductChoice {
    ProductChoice() = default;
    ProductChoice(const BoundProduct& product, std::int64_t along);

    ProductRun made(const BoundProduct& product) const;

    double cycles = std::numeric_limits<double>::infinity();
    std::shared_ptr<const ProductOption> option = {};
};

}  // namespace dlprim
