// How a product would go on one instruction alone, a tile or a GPU's matrix instruction as well as
// a multiply-add: each of its loops is an index along which the same operands move, or all of these
// as one, and what is no neighbour where the instruction needs neighbours is packed. Nothing runs
// so; what runs is the kernel (product_ways.h), which goes through instructions in tiles.
#pragma once

#include <string>
#include <vector>

#include "jit/machine.h"
#include "primitives/mapping/instruction_form.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim {

struct InstructionMatch {
    bool exchanges = false;
    // Indices that are the instruction's rows, columns and sums, a bit for each letter; 0 where it
    // or the product has none.
    std::uint32_t rows = 0;
    std::uint32_t columns = 0;
    std::uint32_t sums = 0;
    bool packs_a = false;
    bool packs_b = false;
    bool packs_c = false;
    double instructions = 0;
    double used = 1;  // part of their products that the product needs
    double cycles = 0;
};

// From the fewest cycles on.
std::vector<InstructionMatch> matches_of(const StridedProduct& product, const InstructionForm& form,
                                         const Machine& machine);

// The same for people, the best few or all.
std::string described_matches(const StridedProduct& product, const InstructionForm& form, bool all);

}  // namespace dlprim
