// How far every index of a definition goes, once shapes are known. `where` and given sizes come
// first; then every access that must lie inside its tensor bounds the index that it alone leaves
// open, in rounds, other indices at their worst; what several bound goes as far as all allow.
// Indices begin at 0. What is left over must hold by itself, and places that are read from tensors
// are looked at when they are known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lang/affine.h"
#include "lang/check.h"

namespace dlprim {

using Shape = std::vector<std::int64_t>;
using Shapes = std::map<std::string, Shape, std::less<>>;

struct IndexRange {
    std::string name = {};
    std::int64_t extent = 0;
    bool reduced = false;
};

struct Ranges {
    Constants sizes = {};
    Shapes shapes = {};  // of all tensors, temporaries too
    // Of each statement: the indices of its result, then the reduced ones in order of appearance.
    std::vector<std::vector<IndexRange>> statements = {};
};

// `shapes` has every parameter, and may have results that are read or added to first; `given` says
// sizes by their names, and extents of indices in all statements that have them. Throws
// std::invalid_argument.
Ranges ranges_of(const Definition& definition, const Symbols& symbols, const Shapes& shapes,
                 const Constants& given = {});

}  // namespace dlprim
