// A definition in which no name is written twice: y(n,o) = fmax(y(n,o) + b(o), 0) makes y_2 of y_1.
// So a gradient can read what stood in a result at any time, and shapes are formulas of sizes.
#pragma once

#include <string>
#include <vector>

#include "lang/definition.h"
#include "lang/gradients/extents.h"
#include "lang/gradients/places.h"

namespace dlprim {

struct VersionedStatement {
    Statement statement = {};
    std::string before = {};  // what stood in the result; nothing for the first one
    Statement copy = {};      // of that, where the statement does not initialize
    bool is_real = true;      // the result has numbers with fractions
};

// Of the last version of a result.
struct GivenGradient {
    std::string name = {};
    std::string version = {};
    std::vector<Expression> dimensions = {};
};

struct VersionedDefinition {
    Definition source = {};
    std::vector<VersionedStatement> statements = {};
    std::vector<Parameter> arrays = {};  // results that were there before
    std::vector<GivenGradient> gradients = {};
    NamedShapes shapes = {};
    Names names = {};

    // Of the definition that is made: all arrays that go in.
    std::vector<Parameter> parameters() const;
};

// Throws std::invalid_argument where `parameter` is none and no result that is read before it is
// written, or is no real number.
VersionedDefinition with_versions(const Definition& definition, const std::string& parameter);

// Whether it reads an element of a tensor.
bool reads(const Statement& statement, const std::string& tensor);

// The statements of a definition, and more behind them: those without which one result is another.
std::vector<Statement> needed_for(const std::string& result, const VersionedDefinition& definition,
                                  const std::vector<Statement>& more);

}  // namespace dlprim
