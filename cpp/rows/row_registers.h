// Registers for a plan whose steps are written: how many vectors are under way together, where each
// role begins, and which single values find a register. This is the one place that counts them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "rows/row_plan.h"

namespace dlprim {

// What the steps of a plan hold at a time, at most.
struct RowDemand {
    int vectors = 0;        // values of one vector
    int columns = 0;        // values of a column, through all rows of a strip
    int singles = 0;        // single values; in the steps each has its number as a register
    bool operands = false;  // whether operands are read where they lie
    bool spills = false;    // whether values of one vector are on the stack
};

// Sets `unroll`, `takes_turns`, the registers and the vectors on the stack, and gives single values
// their places. False, and nothing set but what would be needed, where registers are too few.
bool assign_registers(RowPlan& plan, const RowDemand& demand);

// Of a plan that got none: how many values of one vector may be in registers. Throws
// std::invalid_argument where that is too few.
int vectors_that_fit(const RowPlan& plan);

// Which values hold the registers of one vector, at most so many, while steps are written.
class VectorHolders {
public:
    explicit VectorHolders(int most) : most_(most) {}

    int count() const { return static_cast<int>(values_.size()); }
    bool is_full() const {
        return count() == most_ &&
               std::find(values_.begin(), values_.end(), kNoValue) == values_.end();
    }
    // Of free registers the wanted one, which may be none.
    int take(int value, int wanted) {
        auto free = std::find(values_.begin(), values_.end(), kNoValue) - values_.begin();
        if (wanted != kNoValue && values_[static_cast<std::size_t>(wanted)] == kNoValue) {
            free = wanted;
        }
        if (free == std::ssize(values_)) values_.push_back(kNoValue);
        values_[static_cast<std::size_t>(free)] = value;
        return static_cast<int>(free);
    }
    void release(int index) { values_[static_cast<std::size_t>(index)] = kNoValue; }
    // The value of which `rank` is highest.
    template <class Rank>
    int release_most(const Rank& rank) {
        const auto most = std::max_element(values_.begin(), values_.end(),
                                           [&](int a, int b) { return rank(a) < rank(b); });
        return std::exchange(*most, kNoValue);
    }

private:
    int most_;
    std::vector<int> values_;
};

// Registers that a step overwrites beside its result.
int scratch_registers(const RowStep& step, const RowSpec& spec, Isa isa);

}  // namespace dlprim
