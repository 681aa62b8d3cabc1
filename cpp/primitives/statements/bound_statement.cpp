#include "primitives/statements/bound_statement.h"

#include <algorithm>
#include <utility>

namespace dlprim {
namespace {

template <class Body>
void for_operands(BoundStatement& statement, const Body& body) {
    body(statement.result);
    for (BoundOperand& it : statement.operands) body(it);
}

// By the result, or by the first operand that has the index.
bool goes_down(const BoundStatement& statement, std::size_t index) {
    if (statement.result.strides[index] != 0) return statement.result.strides[index] < 0;
    const auto found = std::find_if(statement.operands.begin(), statement.operands.end(),
                                    [&](const BoundOperand& it) { return it.strides[index] != 0; });
    return found != statement.operands.end() && found->strides[index] < 0;
}

bool continues(BoundStatement& statement, std::size_t outer, std::size_t inner) {
    const IndexRange &a = statement.indices[outer], &b = statement.indices[inner];
    bool does = outer != inner && a.reduced == b.reduced;
    for_operands(statement, [&](const BoundOperand& it) {
        does = does && it.strides[outer] == b.extent * it.strides[inner];
    });
    return does;
}

bool merge_two(BoundStatement& statement) {
    for (std::size_t outer = 0; outer < statement.indices.size(); ++outer) {
        for (std::size_t inner = 0; inner < statement.indices.size(); ++inner) {
            if (!continues(statement, outer, inner)) continue;
            IndexRange& it = statement.indices[inner];
            it.extent *= statement.indices[outer].extent;
            it.name = statement.indices[outer].name + it.name;
            remove_index(statement, outer);
            return true;
        }
    }
    return false;
}

}  // namespace

void simplify(BoundStatement& statement) {
    for (std::size_t i = statement.indices.size(); i-- > 0;) {
        if (statement.indices[i].extent == 1) {
            remove_index(statement, i);
        } else if (goes_down(statement, i)) {
            for_operands(statement, [&](BoundOperand& it) {
                it.offset += (statement.indices[i].extent - 1) * it.strides[i];
                it.strides[i] = -it.strides[i];
            });
        }
    }
    while (merge_two(statement)) {
    }
}

void remove_index(BoundStatement& statement, std::size_t index) {
    const auto place = static_cast<std::ptrdiff_t>(index);
    statement.indices.erase(statement.indices.begin() + place);
    for_operands(statement,
                 [&](BoundOperand& it) { it.strides.erase(it.strides.begin() + place); });
}

std::size_t add_index(BoundStatement& statement, IndexRange index) {
    statement.indices.push_back(std::move(index));
    for_operands(statement, [](BoundOperand& it) { it.strides.push_back(0); });
    return statement.indices.size() - 1;
}

BoundStatement restricted(BoundStatement statement, std::size_t index, std::int64_t first,
                          std::int64_t count) {
    for_operands(statement, [&](BoundOperand& it) { it.offset += first * it.strides[index]; });
    statement.indices[index].extent = count;
    return statement;
}

BoundStatement cut(BoundStatement statement, std::size_t index, std::int64_t part) {
    IndexRange parts = statement.indices[index];
    parts.extent /= part;
    parts.name += "/" + std::to_string(part);
    statement.indices[index].extent = part;
    const std::size_t added = add_index(statement, std::move(parts));
    for_operands(statement,
                 [&](BoundOperand& it) { it.strides[added] = part * it.strides[index]; });
    return statement;
}

std::int64_t extent_of(const BoundStatement& statement, bool reduced) {
    std::int64_t extent = 1;
    for (const IndexRange& it : statement.indices) {
        if (it.reduced == reduced) extent *= it.extent;
    }
    return extent;
}

std::int64_t length_of(const Expression& value) {
    // Functions of one operand are polynomials, most of them.
    constexpr std::int64_t kFunction = 8;
    std::int64_t length = value.operands.size() == 1 ? kFunction : 1;
    for (const Expression& it : value.operands) length += length_of(it);
    return length;
}

}  // namespace dlprim
