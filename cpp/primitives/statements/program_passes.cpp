#include "primitives/statements/program_passes.h"

#include <algorithm>
#include <map>

namespace dlprim {
namespace {

// Calls `body` with each instruction and its pass.
template <class Body>
void for_instructions(const RowSpec& spec, const Body& body) {
    const std::vector<int> pass = passes_of(spec);
    for (std::size_t i = 0; i < pass.size(); ++i) body(spec.instructions[i], pass[i]);
}

bool stores_tensor(const RowSpec& spec, const RowInstruction& it) {
    return it.op == RowOp::store && spec.operands[it.detail].shape == RowShape::tensor;
}

}  // namespace

int most_sums(const RowSpec& spec) {
    std::map<int, int> sums;
    int most = 0;
    for_instructions(spec, [&](const RowInstruction& it, int pass) {
        if (is_reduction(it.op)) most = std::max(most, ++sums[pass]);
    });
    return most;
}

int waits_for_sums(const RowSpec& spec) {
    int waits = 0;
    for_instructions(spec, [&](const RowInstruction& it, int pass) {
        if (is_reduction(it.op)) waits = std::max(waits, pass);
    });
    return waits;
}

std::vector<std::size_t> stored_early(const RowSpec& spec) {
    int last = 0;
    for_instructions(spec, [&](const RowInstruction& it, int pass) {
        if (is_reduction(it.op) || stores_tensor(spec, it)) last = std::max(last, pass);
    });
    std::vector<std::size_t> early;
    for_instructions(spec, [&](const RowInstruction& it, int pass) {
        if (stores_tensor(spec, it) && pass < last) early.push_back(it.detail);
    });
    return early;
}

}  // namespace dlprim
