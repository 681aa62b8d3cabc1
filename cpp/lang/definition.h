// A layer as a user writes it, in the notation of Tensor Comprehensions (arXiv 1802.04730):
//   def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
//       y(n,o) +=! x(n,i) * w(o,i)
//       y(n,o) = fmax(y(n,o) + b(o), 0)
//   }
// A statement holds for all values of its indices; an index that stands on the right only is
// reduced over. What is here is the text as a value; nothing is known of sizes or of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lang/expression.h"

namespace dlprim {

// How a statement joins what falls on one element of its result.
enum class Reduction : std::uint8_t { none, sum, product, largest, smallest };

// "where i in 0:10": index, first value, one behind the last.
struct RangeClause {
    std::string index = {};
    Expression first = {};
    Expression end = {};
    std::int64_t position = 0;
};

struct Statement {
    std::string result = {};
    std::vector<std::string> indices = {};  // of the result: the names in the places of `target`
    // The left side as a read. What a definition writes has an index at every place, or digits that
    // go over every element once, y(2*a+b) where b in 0:2 (check.h and ranges.h say so); products
    // that drivers write for themselves may scatter, dst?(2*p+r-1) +=! ..
    Expression target = {};
    Reduction reduction = Reduction::none;
    bool initializes = true;  // "+=!" and "=", else what stands in the result is joined, too
    Expression value = {};
    std::vector<RangeClause> ranges = {};
    std::vector<Expression> exists = {};  // "where exists x(i)": reads that only bound ranges
    std::int64_t position = 0;
};

// "float(N,C,H/2+1) x": a dimension is a name of a size, a number, or a formula of sizes that are
// dimensions themselves.
struct Parameter {
    std::string type = {};
    std::string name = {};
    std::vector<Expression> dimensions = {};
    std::int64_t position = 0;
};

struct Definition {
    std::string text = {};  // all of what was parsed, which positions count in
    std::string name = {};
    std::vector<Parameter> parameters = {};
    std::vector<std::string> returns = {};
    std::vector<Statement> statements = {};
};

// The numbers of the statements that write a tensor, and of all that name it, in order.
struct Mentions {
    std::vector<int> writes = {};
    std::vector<int> all = {};

    // Whether some statement before `first` or behind `last` names it.
    bool outside(int first, int last) const { return all.front() < first || all.back() > last; }
};

// Of every name in values and on the left of statements.
using MentionsByName = std::map<std::string, Mentions, std::less<>>;
MentionsByName mentions_in(const Definition& definition);

// As parse_contraction() (parser.h) has it.
Definition definition_of(std::string text, Statement only);

}  // namespace dlprim
