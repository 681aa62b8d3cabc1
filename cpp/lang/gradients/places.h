// The places of a read solved for indices: where T(p + r) is read, the element h of T was read for
// p = h - r. Where that is no whole number, T(2*p + r), elements go by their remainders: with
// h = 2*a + b and r = 2*c + b, p is a - c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

// An index of the statement as a sum of those that are left.
struct Solved {
    std::string index = {};
    AffineSum by = {};
    bool is_inside = false;  // its extent, whatever the values of those are
};

// A dimension by quotients and remainders.
struct SplitPlace {
    std::size_t place = 0;
    std::int64_t step = 0;
    std::string quotient = {};
    std::string remainder = {};
    AffineSum shift = {};  // from step * quotient + remainder to places of the tensor
};

class SolvedPlaces {
public:
    // Of a read by a statement.
    SolvedPlaces(const Expression& read, const Statement& statement, const NamedShapes& shapes,
                 Names& names);

    // An index of the statement, or of what it was solved by, that is neither solved nor a target.
    bool is_open(const std::string& index) const;
    AffineSum placed(const AffineSum& sum) const;  // with what indices were solved by

    std::vector<std::string> targets = {};  // an index for each dimension
    std::vector<Solved> solved = {};
    std::vector<SplitPlace> splits = {};
    // Targets, and places that they are equal to: nothing could be solved.
    std::vector<std::pair<std::string, Expression>> unsolved = {};
    std::vector<std::string> zeros = {};  // remainders that have to be 0
    Extents extents = {};                 // of all indices but targets that the statement lacks

private:
    void rename(const Expression& place, const Extent& dimension, std::size_t i);
    void solve(const AffineSum& sum, const AffineTerm& term, const std::string& target);
    bool does_split(const AffineSum& sum, const Extent& dimension, std::size_t i);
    AffineSum split_unit(const std::string& index, const SplitPlace& split);
    void add(Solved made);
    const AffineTerm* term_to_solve(const AffineSum& sum) const;
    bool is_of_result(const std::string& index) const;

    const Statement& statement_;
    const NamedShapes& shapes_;
    Names& names_;
};

}  // namespace dlprim
