#include "primitives/matrix_product.h"

#include <algorithm>

#include "primitives/contraction.h"
#include "primitives/parallel.h"

namespace dlprim {
namespace {

// Rows of C per kernel call: enough to use a panel of B many times.
constexpr std::int64_t kBlockRows = 64;
// Depth of one kernel call: with kPanelColumns columns a block of B is 256 KiB, so it stays in the
// L2 cache while all blocks of rows pass over it.
constexpr std::int64_t kBlockDepth = 1024;
// Rows innermost of what threads share: neighbouring tasks use the same panel of B.
const Schedule kSchedule = {.levels = {{.letter = 'n', .step = 1, .parallel = true},
                                       {.letter = 'm', .step = kBlockRows, .parallel = true},
                                       {.letter = 'k', .step = 1, .parallel = false}}};

std::int64_t bytes(std::int64_t elements) { return elements * size_of(DType::f32); }

// Loops: n panels of columns, m rows, k blocks of the depth. An empty sum is one block without
// entries.
Contraction contraction_of(const MatrixProduct& product) {
    const std::int64_t columns = std::min(product.n, kPanelColumns);
    const std::int64_t depth = std::clamp<std::int64_t>(product.k, 1, kBlockDepth);
    const std::int64_t blocks = std::max<std::int64_t>((product.k + depth - 1) / depth, 1);
    Contraction made;
    made.loops = {
        {.letter = 'n',
         .extent = (product.n + columns - 1) / columns,
         .b = bytes(product.b_panel_stride),
         .c = bytes(columns),
         .bias = bytes(columns)},
        {.letter = 'm',
         .extent = product.m,
         .a = bytes(product.trans_a ? 1 : product.lda),
         .c = bytes(product.ldc)},
        {.letter = 'k',
         .extent = blocks,
         .a = bytes(depth * (product.trans_a ? product.lda : 1)),
         .b = bytes(depth * product.ldb),
         .sum = true},
    };
    made.rows = {.loop = 1, .unit = 1, .total = product.m};
    made.columns = {.loop = 0, .unit = columns, .total = product.n};
    made.batch = {.loop = 2, .unit = depth, .total = std::max<std::int64_t>(product.k, 1)};
    Term term{.lda = product.lda, .first = true, .last = true};
    if (product.k > 0) {
        term.entries_a = {0};
        term.entries_b = {0};
    }
    made.selections = {{}};
    made.classes = {{term}};
    made.trans_a = product.trans_a;
    made.ldb = product.ldb;
    made.ldc = product.ldc;
    made.epilogue = {.bias = product.bias != nullptr, .activation = product.activation};
    made.bytes_a = static_cast<double>(bytes(product.m * product.k));
    made.bytes_b = static_cast<double>(bytes(product.k * product.n));
    made.bytes_c = static_cast<double>(bytes(product.m * product.n));
    return made;
}

}  // namespace

void multiply(const MatrixProduct& product) {
    if (product.m == 0 || product.n == 0) return;
    ContractionPlan(contraction_of(product), kSchedule)
        .run({.a = product.a, .b = product.b, .c = product.c, .bias = product.bias}, nullptr,
             num_threads());
}

}  // namespace dlprim
