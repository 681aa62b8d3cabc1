// Which instructions multiply and accumulate, and what they cost around the multiplication itself:
// the one place where a pair of types and an ISA become arithmetic. Everything else in planner and
// emitter is the same for all types, because A, B and the accumulators are words of 32 bits there.
// They are a table: what an instruction computes stands there in the notation of users' formulas,
// which is not read here, but by what maps formulas to instructions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "brgemm/spec.h"
#include "jit/isa.h"

namespace dlprim {

// How one word of A (one, two or four elements of k) meets a vector of words of B.
enum class Multiply : std::uint8_t {
    fma,            // float32
    dot_bf16,       // vdpbf16ps: pairs at once
    widen_bf16,     // each half of a pair widened to float32, exactly; two FMAs
    dot_int8,       // vpdpbusd: quadruples at once, of unsigned and of signed bytes
    widen_int8,     // even and odd bytes widened to 16 bits; vpmaddwd, which cannot saturate here
    dot_same_int8,  // vpdpbssd, vpdpbuud: quadruples at once, both signed or both unsigned
    dot_int16,      // vpmaddwd: pairs at once, words of 16 bits; added by a second instruction
    tiles,          // AMX: 16 rows of A and columns of B, up to 16 words deep, at once
};

std::string_view name_of(Multiply multiply);

// What a way of multiplying costs, per pass over the operands of a step.
struct MultiplyCost {
    int latency;       // cycles of the multiply-add, with slack to schedule around loads
    int passes;        // times that A and B are read per step
    int instructions;  // per row and vector
    int a_operations;  // to prepare a word of A
    int b_operations;  // to prepare a vector of B
    bool embedded;     // A can be a memory operand (AVX-512)
    bool quads;        // a word of A is used as it stands in memory
};

// An instruction, or the few that stand for one.
struct Instruction {
    std::string_view name;
    // "c(j) += a() * b(j) where j in 0:16": places of an operand that fill a row of a register,
    // `row_bytes` at most, lie behind each other; what comes in front of them may lie anywhere.
    std::string_view statement;
    Multiply multiply;
    Isa isa;  // the lowest level that has it
    DType a_type;
    DType b_type;
    DType c_type;
    MultiplyCost cost;
    // 0: as often as the machine starts multiply-adds of vectors.
    double starts_per_cycle = 0;
    std::int64_t row_bytes = 64;
    bool has_kernels = true;  // else it is described to see what would map to it
};

std::span<const Instruction> instructions();

// The one that a kernel for `spec` multiplies with.
const Instruction& instruction_of(const BrgemmSpec& spec, Isa isa);

// The ISA level whose instructions a kernel for `spec` uses: the highest useful one at most `isa`.
inline Isa kernel_isa(const BrgemmSpec& spec, Isa isa) { return instruction_of(spec, isa).isa; }

inline Multiply multiply_of(const BrgemmSpec& spec, Isa isa) {
    return instruction_of(spec, isa).multiply;
}

MultiplyCost cost_of(const BrgemmSpec& spec, Isa isa);

// The bits of a word that hold its first `elements` elements.
std::uint32_t valid_bits(DType dtype, int elements);

// What a kernel adds to each element of A, 0 mostly: vpdpbusd takes bytes of both kinds, so of two
// operands of one kind A becomes the other. Flipped sign bits move int8 up and uint8 down by 128,
// which is a zero point.
int shift_of_a(const BrgemmSpec& spec, Isa isa);

// Whether the kernel sums the columns of B beside the products, as it does the rows of A where B
// has a zero point.
bool sums_b(const BrgemmSpec& spec, Isa isa);

}  // namespace dlprim
