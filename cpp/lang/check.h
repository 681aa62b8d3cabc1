// Whether a definition makes sense, before anything is known of sizes: which names are tensors,
// sizes and indices, that ranks and kinds of values fit, that nothing is read before it is written.
// What passes here fails later only for its sizes.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lang/definition.h"
#include "lang/functions.h"

namespace dlprim {

struct Tensor {
    std::size_t rank = 0;
    ValueType type = ValueType::real;
    bool is_parameter = false;
    // A result that the definition adds to or reads before it writes it: the caller's array.
    bool is_in_out = false;
};

// What names mean in a definition; any other one is an index of the statement that it stands in.
// Names that are written and not returned are temporaries.
struct Symbols {
    std::set<std::string, std::less<>> sizes = {};
    std::map<std::string, Tensor, std::less<>> tensors = {};

    bool is_index(const std::string& name) const {
        return !sizes.contains(name) && !tensors.contains(name);
    }
};

// Throws std::invalid_argument as refuse_at (lexer.h) says.
Symbols checked(const Definition& definition);

// Parsed (parser.h) and checked: the definitions of a text, and one statement.
std::vector<Definition> checked_definitions(std::string_view text);
Definition checked_contraction(std::string_view text);

// The indices of a statement in order of appearance, those of the result in front.
std::vector<std::string> indices_of(const Statement& statement, const Symbols& symbols);

// Of an expression in a definition with these symbols; `text` is for messages.
ValueType type_of(const Expression& expression, const Symbols& symbols, const std::string& text);

}  // namespace dlprim
