// What a definition means, computed element by element in double precision: the oracle of the
// tests, and the way for statements that have no fast one. Operands of "?:", "&&" and "||" are
// computed when they are needed, so conditions can guard reads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lang/ranges.h"

namespace dlprim {

// Dense, in C order.
struct Array {
    Shape shape = {};
    std::vector<double> values = {};
};

using Arrays = std::map<std::string, Array, std::less<>>;

// `arrays` has the parameters, and the results that are read or added to before they are written;
// all that is written is there afterwards. `given` is as in ranges_of. Throws std::invalid_argument
// as checked and ranges_of do, and where a place read from a tensor lies outside another.
void interpret(const Definition& definition, Arrays& arrays, const Constants& given = {});

}  // namespace dlprim
