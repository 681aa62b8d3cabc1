// What the drivers run: a statement of the language (lang/definition.h) that is a product,
//   dst(n,k,p,q) +=! src?(n,c,2*p+r-1,2*q+s-1) * weights(k,c,r,s)
// of two operands or one, or `+= 0`, which adds nothing, for those who only want what comes
// afterwards; all places are sums of indices. Its result may scatter: a `?` on the left says that
// nothing is written where a place lies outside the array.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lang/affine.h"

namespace dlprim {

struct Access {
    std::string tensor = {};
    bool may_lie_outside = false;  // "?"
    std::vector<AffineSum> places = {};
};

struct ProductFormula {
    std::string text = {};  // as it was written
    Access result = {};
    bool adds_to_result = true;        // "+=", else "+=!"
    std::vector<Access> factors = {};  // none, one or two
};

// Throws std::invalid_argument as refuse_at (lang/lexer.h) says.
ProductFormula parse_product(std::string_view text, const Constants& constants = {});

}  // namespace dlprim
