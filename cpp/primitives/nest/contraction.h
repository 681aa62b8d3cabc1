// What the one driver (contraction_plan.h) executes for every primitive that is a nest of loops
// around the kernel. A Contraction says, as data, which loops there are, how far every operand
// moves along each of them, and what is summed inside one kernel call. What the operands mean
// (filter taps, gates, minibatches) is known only to whoever wrote the description. All strides and
// offsets are in bytes.
//
// A result block, rows x columns of C, belongs to one iteration of the loops that are not sums.
// Some blocks need several kernel calls, because not every row of C takes part in every product
// (the taps of a filter that lie outside an image are left out, not multiplied by zeros): these
// are the terms of the block. Blocks that need the same terms are of one class.
#pragma once

#include <cstdint>
#include <vector>

#include "brgemm/spec.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/quantization.h"

namespace dlprim {

// A loop and how far the operands are from one index to the next.
struct ContractionLoop {
    char letter = 'a';
    std::int64_t extent = 0;
    std::int64_t a = 0;
    std::int64_t b = 0;
    std::int64_t c = 0;
    std::int64_t bias = 0;
    std::int64_t ahead_a = 0;  // of what is fetched ahead, see Fetching::elsewhere
    std::int64_t ahead_b = 0;
    bool sum = false;  // iterations add to the same C
};

// A dimension of the kernel that follows a loop: `unit` elements per index, `total` in all, so the
// last index may have fewer.
struct Dimension {
    int loop = -1;  // -1: the terms say it
    std::int64_t unit = 1;
    std::int64_t total = 0;
    // Of columns: a loop over `parts` of an index of the other one, which then have the units. The
    // last ones may lie behind the total.
    int part_loop = -1;
    std::int64_t parts = 1;

    std::int64_t size(Range range) const;
};

// Kernel calls that add products to some rows of a block of C. A pair (A_i, B_i) for every index of
// the batch loop and every entry.
struct Term {
    std::int64_t m = 0;  // 0: the rows of the block
    std::int64_t n = 0;  // 0: the columns of the block
    std::int64_t k = 0;  // 0: the unit of the batch loop, or what is left in its last index
    std::int64_t lda = 0;
    std::int64_t c_row = 0;   // first row of C, counted in rows of the block
    std::int64_t c_step = 1;  // rows of C from one row of the term to the next
    std::vector<std::int64_t> entries_a = {};
    std::vector<std::int64_t> entries_b = {};
    // With an entry loop: entries_begin[i] is the first entry of index i or later; one more than
    // the extent of the loop.
    std::vector<std::int64_t> entries_begin = {};
    bool first = false;  // nothing was added to these rows before: C is written, not added to
    bool last = false;   // nothing is added to these rows after it: the epilogue is due
};

// What is brought into the caches before its turn.
struct Fetching {
    // How far A and B are from one index of the entry loop to the next.
    std::int64_t entry_a = 0;
    std::int64_t entry_b = 0;
    // What will be needed next is not in A and B: it moves along the loops by ahead_a and ahead_b
    // from where a run says.
    bool elsewhere = false;
    // B of the next block is fetched too, where it is not the A of the next block that is far.
    bool next_b = false;
    // Of either B alone: what A is made from lies in another way than A.
    bool only_b = false;
    // B is far, A is near: all calls on a block of B together fetch the next one, evenly.
    bool far_b = false;
};

struct Contraction {
    std::vector<ContractionLoop> loops;
    Dimension rows;          // m
    Dimension columns;       // n; its loop has step 1
    Dimension batch;         // the loop whose range becomes a batch, its unit is k
    int entry_loop = -1;     // the loop whose range selects entries
    int selector_loop = -1;  // the loop whose index selects a class; it has step 1

    struct Selection {
        int block_class = 0;
        std::int64_t a = 0;  // offset of A, for what is no multiple of the index
    };
    std::vector<Selection> selections;       // one per index of the selector loop; one without
    std::vector<std::vector<Term>> classes;  // terms of each class, in order
    std::int64_t block_rows = 0;             // of C where the terms say m: what a block spans

    DType dtype = DType::f32;  // of A
    DType b_type = DType::f32;
    DType c_type = DType::f32;
    bool trans_a = false;
    std::int64_t ldb = 0;
    std::int64_t ldc = 0;      // elements from one row of the block to the next
    bool sliding_a = false;    // rows of A overlap
    bool accumulates = false;  // may be asked to add to C
    // A call adds its own sum to what stands in C, instead of continuing that one: rounding errors
    // then grow with the depth of a call. Without an epilogue, and C is of float32.
    bool adds_sums = false;
    Gaps gaps = {};  // zeros that the last kernel of a sum writes beside C
    std::int64_t gap_stride = 0;
    Epilogue epilogue = {};
    Fetching fetching = {};
    // Bytes of the whole operands, for whoever weighs schedules.
    double bytes_a = 0;
    double bytes_b = 0;
    double bytes_c = 0;
    double flops = 0;

    // Whether sums are never left and taken up again: a result that is no float32 is rounded once,
    // and 8-bit products are added up as integers.
    bool sums_at_once() const { return c_type != DType::f32 || is_integer(dtype); }

    int loop_of(char letter) const;  // its index in `loops`; -1 without
    const ContractionLoop& loop_at(int index) const {
        return loops[static_cast<std::size_t>(index)];
    }

    // The relu mask has a bit for every element of C: bytes of ldc of them, and those in front of
    // an element of C that begins a row or follows a multiple of eight in one.
    std::int64_t mask_row() const { return (ldc + 7) / 8; }
    std::int64_t mask_offset(std::int64_t c_bytes) const {
        const std::int64_t element = c_bytes / size_of(c_type);
        return element / ldc * mask_row() + element % ldc / 8;
    }
};

// The epilogue of 8-bit products: what is asked for, and what their result takes besides.
inline Epilogue quantized(Epilogue asked, DType result) {
    if (result == DType::s32) return asked;
    asked.scale = Scale::column;
    asked.range = is_int8(result);
    asked.residual_scale = asked.range && asked.residual;
    if (asked.range && asked.activation == Activation::relu) asked.activation = Activation::none;
    return asked;
}

struct ContractionOperands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    const std::int32_t* int_bias = nullptr;  // where the bias is
    const float* scale = nullptr;            // one value, or one for each column of C
    const float* bias = nullptr;
    const void* residual = nullptr;  // where C is in C
    float residual_scale = 1;
    InnerRounding inner = {};
    ResultRange range = {};  // held by C
    std::uint8_t* relu_mask = nullptr;
    bool accumulate = false;        // adds to what stands in C; the description must allow it
    const void* ahead_a = nullptr;  // with Fetching::elsewhere, or null
    const void* ahead_b = nullptr;
};

}  // namespace dlprim
