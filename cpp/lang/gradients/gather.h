// A statement that reads T(2*p + r) scatters its gradient over T. No statement of the language
// writes so: here it is turned round, to one that goes over T and gathers what fell on each of its
// elements. The places of the read are solved for indices, which disappear: of T(p + r) is p = h -
// r for the element h. What an index cannot be solved for is asked as a condition.
#pragma once

#include <set>
#include <string>

#include "lang/gradients/extents.h"

namespace dlprim {

// Names that are taken; what is made is none of them.
class Names {
public:
    std::string fresh(const std::string& name);     // the name itself, if it is free
    std::string numbered(const std::string& name);  // name_1, name_2, ..
    void take(const std::string& name) { taken_.insert(name); }

private:
    std::set<std::string, std::less<>> taken_;
};

struct Scatter {
    const Expression& read;      // of the statement
    const Expression& value;     // what falls on what is read, for all indices of the statement
    const Statement& statement;  // whose result's gradient is `gradient`
    const std::string& gradient;
    const std::string& text;  // for messages
};

struct Gathered {
    Statement statement = {};  // whose result is to be named, and whose indices to be bounded
    Extents extents = {};      // of these
};

// The sum over all that falls on an element of the tensor that is read. Throws
// std::invalid_argument as refuse_at (lexer.h) says.
Gathered gathered(const Scatter& scatter, const NamedShapes& shapes, Names& names);

// With clauses for the indices that would not go as far as they should without.
void bound_indices(Statement& statement, const NamedShapes& shapes, const Extents& extents);

}  // namespace dlprim
