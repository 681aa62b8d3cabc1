// A statement that reads T(2*p + r) scatters its gradient over T. No statement of the language
// writes so: here it is turned round, to one that goes over T and gathers what fell on each of its
// elements. Indices that the places of the read are solved for (places.h) disappear; what is read
// for them is zero outside, or is asked for.
#pragma once

#include <string>
#include <vector>

#include "lang/gradients/extents.h"
#include "lang/gradients/places.h"

namespace dlprim {

struct Scatter {
    const Expression& read;      // of the statement
    const Expression& value;     // what falls on what is read, for all indices of the statement
    const Statement& statement;  // whose result's gradient is `gradient`
    const std::string& gradient;
    const std::string& text;  // for messages
};

struct Gathered {
    Statement statement = {};  // whose indices are to be bounded
    Extents extents = {};      // of these
};

// The sum over all that falls on an element of the tensor that is read, as the last of one or two
// statements; its result is to be named. Throws std::invalid_argument as refuse_at (lexer.h) says.
std::vector<Gathered> gathered(const Scatter& scatter, const NamedShapes& shapes, Names& names);

// With clauses for the indices that would not go as far as they should without.
void bound_indices(Statement& statement, const NamedShapes& shapes, const Extents& extents);

}  // namespace dlprim
