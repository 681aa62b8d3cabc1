// A product of two operands and the statements behind it on its result, by the cheapest of what can
// compute it: the kernel by one of its ways, Winograd's algorithm, sums along rows, or row
// programs. What of the statements is not part of that runs behind it, in place. Every front, a
// formula as a linear layer on plain arrays, is a statement that comes here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "primitives/products/narrow_pass.h"
#include "primitives/products/product_options.h"
#include "primitives/products/product_pass.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {

// Statements on known arrays; `next` may be none.
struct BoundProduct {
    BoundStatement statement = {};
    std::vector<NextStatement> next = {};
    // Calls that share what is packed of each factor.
    double uses_a = 1;
    double uses_b = 1;

    // None where the statement is no product of matrices with that end.
    std::optional<StridedProduct> strided() const;
};

class ProductRun {
public:
    // By the cheapest option, or by rows what is no product of matrices. Throws
    // std::invalid_argument where the kernel does not multiply such bytes.
    explicit ProductRun(const BoundProduct& product);
    ProductRun(const BoundProduct& product, const ProductOption& option);

    // First elements of the arrays: the operands of the statement, the bias. The result overlaps
    // none of them. `packed`: what pack() made of the factors, or null. The same bits for any
    // number of threads.
    void run(std::span<const void* const> operands, void* result,
             const ProductPass::Factors& packed = {}) const;

    // As of ProductPass.
    std::int64_t packed_bytes(int operand) const;
    void pack(int operand, const void* array, char* scratch) const;

    std::shared_ptr<ProductPass> kernel_pass() const;  // null where the kernel is not called
    std::string described() const;

private:
    // In place on the result; operands are that or the bias.
    struct Next {
        RowStatement statement;
        std::vector<bool> is_result = {};
    };

    std::variant<std::shared_ptr<ProductPass>, WinogradProduct, NarrowPass, RowStatement> what_;
    std::vector<Next> next_ = {};
};

}  // namespace dlprim
