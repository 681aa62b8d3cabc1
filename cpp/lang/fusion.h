// Which statements of a definition may go through some values of an index together, so that what
// one writes is read by the next while it is still in the caches. They must agree on what the index
// is: it has one name and one extent in all of them, stands in all of their results, alone at the
// same place of everything that they write and read from each other and at no other place of that,
// and is nowhere a number.
// Then a few of its values depend on no others.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lang/definition.h"
#include "lang/ranges.h"

namespace dlprim {

struct StatementGroup {
    int first = 0;
    int count = 1;
    std::vector<std::string> common = {};  // in the order of the first one's result
};

// All statements in their order, each in one group; as long ones as have an index in common.
std::vector<StatementGroup> groups_of(const Definition& definition, const Ranges& ranges);

// Of a statement's result, the place that is the index alone; how many places there are without.
std::size_t place_alone(const Statement& statement, const std::string& index);

}  // namespace dlprim
