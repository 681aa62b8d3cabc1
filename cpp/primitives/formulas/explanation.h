// Why a statement runs as it does, for people: the product of matrices in it, or why there is none,
// all that could run it with the cycles that each is expected to take, and what was chosen; and how
// it would go on an instruction that is asked for by its name. Made when somebody asks.
#pragma once

#include <optional>
#include <string>

#include "primitives/mapping/strided_product.h"
#include "primitives/statements/bound_statement.h"

namespace dlprim {

struct Explained {
    bool all = false;                             // every way, else the best few
    std::optional<std::string> instruction = {};  // how products go on this one, else what runs
};

class Explanation {
public:
    // `chosen` as to_string of a ProductOption; empty where there is no choice.
    Explanation(BoundStatement statement, std::optional<StridedProduct> product,
                std::string chosen);

    // A heading, and lines behind it. Throws std::invalid_argument for an unknown instruction.
    std::string described(const Explained& asked) const;

private:
    std::string heading() const;
    std::string loops() const;
    std::string options(bool all) const;

    BoundStatement statement_;
    std::optional<StridedProduct> product_;
    std::string chosen_;
};

}  // namespace dlprim
