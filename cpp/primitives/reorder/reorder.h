// Copies a tensor from one layout to another: all packing, unpacking and transposing of operands is
// this. Elements are read and written once, so it is worth its cost only at the speed of a plain
// copy. The result is the same bits at every ISA level and for any number of threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "primitives/reorder/reorder_plan.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// A copy that is planned once.
class Reorder {
public:
    // Both layouts have the same letters and extents. The types are equal, or float32 is rounded to
    // bfloat16 as round_to_bf16() does. Throws std::invalid_argument for any other pair of types.
    Reorder(const Layout& from, const Layout& to);

    // Padding of `to` becomes zero, that of `from` is not read; gaps between the strides of `to`
    // are left alone. src and dst must not overlap; elements of src may lie at any byte, as those
    // of a file do.
    void run(const void* src, void* dst) const;

private:
    // One dimension as distances from its first element, for what is moved element by element.
    struct Distances {
        std::vector<std::int64_t> from = {};  // of the indices that exist
        std::vector<std::int64_t> to = {};    // of those that are stored

        // Lower where rows along it are better moved in one go: those whose elements are nearest in
        // both arrays, or the longest where all are short.
        std::pair<bool, std::int64_t> rank() const;
    };

    void run_singly(const char* src, char* dst) const;
    void move_singly(const Distances& it, const char* src, char* dst) const;

    ReorderPlan plan_;
    // Of transpositions: where rows of the largest piece begin in either storage.
    std::vector<std::int64_t> src_rows_ = {};
    std::vector<std::int64_t> dst_rows_ = {};
    std::vector<Distances> distances_ = {};
};

void reorder(const Layout& from, const void* src, const Layout& to, void* dst);

}  // namespace dlprim
