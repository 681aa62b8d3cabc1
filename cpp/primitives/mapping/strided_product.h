// The product of matrices that hides in a statement. What an index is follows from which operands
// move along it: C and A, a row; C and B, a column; A and B, summed; all three, a further product.
// Nothing else of a statement matters to the kernel, so a convolution, a batch of transposed
// matrices and a tensor network all come here as the same few numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "primitives/statements/bound_statement.h"

namespace dlprim {

// Elements of each operand from one value of the index to the next.
struct ProductIndex {
    char letter = 'a';
    std::int64_t extent = 1;
    std::int64_t c = 0;
    std::int64_t a = 0;
    std::int64_t b = 0;
    std::int64_t bias = 0;
    // Of the statement's indices those that are in it, a bit for each letter.
    std::uint32_t members = 0;

    friend bool operator==(const ProductIndex&, const ProductIndex&) = default;
};

// C = activation(C + bias).
struct ProductEnd {
    bool bias = false;
    DType bias_type = DType::f32;
    std::int64_t bias_offset = 0;  // elements in front of what is read of it
    Activation activation = Activation::none;

    bool is_nothing() const { return !bias && activation == Activation::none; }
};

// C[outer][rows][columns] (+)= scale * sum of A[outer][rows][sums] * B[outer][sums][columns], and
// its end.
// Indices of a class from the one that C, or of sums A, moves farthest along to the nearest.
struct StridedProduct {
    DType dtype = DType::f32;  // of A
    DType b_type = DType::f32;
    DType c_type = DType::f32;
    bool accumulates = false;
    float scale = 1;
    // Calls that share what is packed of A, and of B.
    double uses_a = 1;
    double uses_b = 1;
    // Elements in front of what is read of A and B, and of C.
    std::int64_t offset_a = 0;
    std::int64_t offset_b = 0;
    std::int64_t offset_c = 0;
    ProductEnd end = {};
    std::vector<ProductIndex> outer = {};
    std::vector<ProductIndex> rows = {};
    std::vector<ProductIndex> columns = {};
    std::vector<ProductIndex> sums = {};
    std::vector<std::string> names = {};  // in the statement, by letter

    // Of matrices: without one of these it is as much as sums of products of elements, which rows
    // do, but not those of integers, nor the end of a single one before it is rounded.
    bool is_of_matrices() const {
        const bool is_one = outer.empty() && needs_kernel();
        return !sums.empty() && (!rows.empty() || !columns.empty() || is_int8(dtype) || is_one);
    }
    // Integers, and an end before the sum is rounded.
    bool needs_kernel() const {
        return is_int8(dtype) || (c_type == DType::bf16 && !end.is_nothing());
    }
    double flops() const;
};

// What a sum of products is made of: a number, and operands of the statement.
struct ProductFactors {
    double scale = 1;
    std::vector<int> operands = {};
};

// None where the statement is something else.
std::optional<ProductFactors> factors_of(const BoundStatement& statement);

std::int64_t extent_of(const std::vector<ProductIndex>& indices);
inline double values_of(const std::vector<ProductIndex>& indices) {
    return static_cast<double>(extent_of(indices));
}

// Neighbours of which every operand moves along the outer one as many inner ones as there are, as
// one index, which has the letter of the inner one.
void merge(std::vector<ProductIndex>& indices);
std::vector<ProductIndex> merged(std::vector<ProductIndex> indices);

// Whether windows slide: elements of A, or of B, are read for several values of a row, or of a
// column, and of a sum. Such a pair is as a Toeplitz matrix that nobody writes down.
bool slides(const ProductIndex& sum, const ProductIndex& along,
            std::int64_t ProductIndex::* stride);

// A and B, rows and columns exchanged: the transposed product.
StridedProduct exchanged(const StridedProduct& product);

// None where the statement is no sum of products of two operands, both of one float type or both
// bytes that are summed in int32, where an operand moves along an index alone, or where an extent
// is 0.
// With the end that `next` are; none where they are no end, too.
std::optional<StridedProduct> product_in(const BoundStatement& statement,
                                         const std::vector<NextStatement>& next = {});

// Why there is no product of matrices in it, as a clause; empty where there is one. Without rows or
// without columns there is none, but that of a matrix and vectors.
std::string reason_for_none(const BoundStatement& statement);

}  // namespace dlprim
