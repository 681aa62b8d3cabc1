// What an instruction computes, read from its statement (brgemm/multiply.h) by the parser that
// reads users' formulas. Which operands move along a loop is all that a loop is, of an instruction
// and of a formula alike; so a formula's loop can be an instruction's where the same operands move.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "brgemm/multiply.h"
#include "jit/isa.h"
#include "jit/machine.h"
#include "lang/expression.h"

namespace dlprim {

// C and A move: a row; C and B: a column; A and B: a sum; all three: products apart.
enum class LoopRole : std::uint8_t { apart, row, column, sum, none };

LoopRole role_of(bool c, bool a, bool b);

struct InstructionLoop {
    std::string name = {};
    std::int64_t extent = 1;
    LoopRole role = LoopRole::none;
};

// Of an operand: elements from one value of a loop to the next.
struct InstructionPlace {
    LoopRole role = LoopRole::none;
    std::int64_t stride = 1;
    bool is_anywhere = false;  // rows of a register are loaded from where they are
};

class InstructionForm {
public:
    explicit InstructionForm(const Instruction& what);

    const Instruction& what() const { return *what_; }
    const std::vector<InstructionLoop>& loops() const { return loops_; }
    bool has(LoopRole role) const;
    // Of all loops of a role; 1 without.
    std::int64_t extent(LoopRole role) const;
    // Sums that are neighbours in B from one column to the next: what shares a word there.
    std::int64_t word() const { return word_; }
    // As the statement has them, the innermost last.
    const std::vector<InstructionPlace>& places_a() const { return a_; }
    const std::vector<InstructionPlace>& places_b() const { return b_; }
    const std::vector<InstructionPlace>& places_c() const { return c_; }
    double products() const;
    double starts_per_cycle(const Machine& machine) const;

    // "fma16: c(j) += a() * b(j) where j in 0:16"
    std::string described() const;

private:
    std::vector<InstructionPlace> places_of(const Expression& operand, DType dtype) const;

    const Instruction* what_;
    std::vector<InstructionLoop> loops_ = {};
    std::vector<InstructionPlace> a_ = {};
    std::vector<InstructionPlace> b_ = {};
    std::vector<InstructionPlace> c_ = {};
    std::int64_t word_ = 1;
};

// Throws std::invalid_argument that lists the names.
const InstructionForm& instruction_named(std::string_view name);

// What large products of elements of a type are multiplied with.
const InstructionForm& instruction_for(DType a_type, DType b_type, Isa isa);

}  // namespace dlprim
