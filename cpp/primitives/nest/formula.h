// One statement in the notation of Tensor Comprehensions (arXiv 1802.04730), as a value:
//   dst(n,k,p,q) +=! src?(n,c,2*p+r-1,2*q+s-1) * weights(k,c,r,s)
// says which elements of two operands are multiplied and which element of the result the product
// adds to. Indices that stand on the right only are summed. `+=!` writes the result, `+=` adds to
// what stands there, and `+= 0` adds nothing, for those who only want what comes afterwards. `?`
// says that a place may lie outside the array: zero is read there, and nothing is written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dlprim {

struct AffineTerm {
    std::int64_t factor = 1;
    std::string index = {};

    friend bool operator==(const AffineTerm&, const AffineTerm&) = default;
};

// Sum of indices times integers, each index once and none times zero, and a constant.
struct AffineSum {
    std::vector<AffineTerm> terms = {};
    std::int64_t constant = 0;

    friend bool operator==(const AffineSum&, const AffineSum&) = default;
};

struct Access {
    std::string tensor = {};
    bool may_lie_outside = false;  // "?"
    std::vector<AffineSum> places = {};
};

struct Statement {
    std::string text = {};  // as it was written
    Access result = {};
    bool adds_to_result = true;        // "+=", else "+=!"
    std::vector<Access> factors = {};  // none, one or two
};

// Names that stand for numbers in a statement.
using Constants = std::map<std::string, std::int64_t, std::less<>>;

// Throws std::invalid_argument that quotes the text and says what is wrong at which position.
Statement parse_statement(std::string_view text, const Constants& constants = {});

}  // namespace dlprim
