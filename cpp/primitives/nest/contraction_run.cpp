#include <algorithm>

#include "brgemm/brgemm.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/zero_rows.h"

namespace dlprim {
namespace {

char* at(const void* base, std::int64_t offset) {
    return static_cast<char*>(const_cast<void*>(base)) + offset;
}

}  // namespace

// What one body call works on.
struct ContractionPlan::Block {
    const PreparedClass* terms = nullptr;
    const char* a = nullptr;
    const char* b = nullptr;
    char* c = nullptr;  // in C, whether or not it is summed apart
    const float* scale = nullptr;
    const float* bias = nullptr;
    const char* residual = nullptr;
    std::uint8_t* relu_mask = nullptr;
    float* sums = nullptr;
    Range batch{0, 1};
    Range entries{0, 0};
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_kind = 0;
    bool last_columns = false;
    bool first = false;
    bool last = false;
    std::int64_t a_ahead = 0;
    std::int64_t b_ahead = 0;
};

// From these operands to those that follow when the innermost of the ahead_ loops takes a step, or
// where it has ended, starts again with a step of the next one.
void ContractionPlan::set_ahead(const LoopNest::Ranges& ranges, Block& block) const {
    for (const int index : ahead_) {
        const ContractionLoop& loop = contraction_.loops[static_cast<std::size_t>(index)];
        const Range range = ranges[static_cast<std::size_t>(index)];
        const bool ends = range.end >= loop.extent;
        const std::int64_t steps = ends ? -range.begin : range.size();
        block.a_ahead += steps * loop.a;
        block.b_ahead += steps * loop.b;
        if (index == contraction_.entry_loop) {
            block.a_ahead += steps * contraction_.fetching.entry_a;
            block.b_ahead += steps * contraction_.fetching.entry_b;
        } else if (index == contraction_.selector_loop) {
            const auto now = static_cast<std::size_t>(range.begin);
            const auto next = static_cast<std::size_t>(ends ? 0 : range.end);
            block.a_ahead += contraction_.selections[next].a - contraction_.selections[now].a;
        }
        if (!ends) break;
    }
}

ContractionPlan::Block ContractionPlan::block_at(const ContractionOperands& operands,
                                                 const LoopNest::Ranges& ranges) const {
    ContractionLoop offset;
    Block block{.first = !operands.accumulate, .last = true};
    for (std::size_t i = 0; i < contraction_.loops.size(); ++i) {
        const ContractionLoop& loop = contraction_.loops[i];
        const Range range = ranges[i];
        offset.a += range.begin * loop.a;
        offset.b += range.begin * loop.b;
        offset.c += range.begin * loop.c;
        offset.bias += range.begin * loop.bias;
        offset.ahead_a += range.begin * loop.ahead_a;
        offset.ahead_b += range.begin * loop.ahead_b;
        if (loop.sum) {
            block.first = block.first && range.begin == 0;
            block.last = block.last && range.end == loop.extent;
        }
    }
    const auto range_of = [&](int loop) { return ranges[static_cast<std::size_t>(loop)]; };
    const int selector = contraction_.selector_loop;
    const auto selected = static_cast<std::size_t>(selector < 0 ? 0 : range_of(selector).begin);
    const Contraction::Selection& selection = contraction_.selections[selected];
    block.terms = &classes_[static_cast<std::size_t>(selection.block_class)];
    block.a = at(operands.a, offset.a + selection.a);
    block.b = at(operands.b, offset.b);
    block.c = at(operands.c, offset.c);
    if (operands.bias != nullptr) {
        block.bias = reinterpret_cast<const float*>(at(operands.bias, offset.bias));
    }
    if (operands.scale != nullptr) {
        const bool by_column = contraction_.epilogue.scale == Scale::column;
        block.scale =
            reinterpret_cast<const float*>(at(operands.scale, by_column ? offset.bias : 0));
    }
    if (operands.residual != nullptr) block.residual = at(operands.residual, offset.c);
    if (operands.relu_mask != nullptr)
        block.relu_mask = operands.relu_mask + contraction_.mask_offset(offset.c);
    set_ahead(ranges, block);
    if (operands.ahead_a != nullptr) {
        block.a_ahead = at(operands.ahead_a, offset.ahead_a) - block.a;
        block.b_ahead = at(operands.ahead_b, offset.ahead_b) - block.b;
    }
    if (contraction_.batch.loop >= 0) block.batch = range_of(contraction_.batch.loop);
    if (contraction_.entry_loop >= 0) block.entries = range_of(contraction_.entry_loop);
    const Dimension& rows = contraction_.rows;
    block.rows = rows.loop < 0 ? contraction_.block_rows : rows.size(range_of(rows.loop));
    block.row_kind =
        std::lower_bound(row_sizes_.begin(), row_sizes_.end(), block.rows) - row_sizes_.begin();
    block.columns = contraction_.columns.size(range_of(contraction_.columns.loop));
    block.last_columns = block.columns < contraction_.columns.unit;
    return block;
}

void ContractionPlan::call(const PreparedTerm& prepared, const Block& block, Range blocks,
                           bool last_depth) const {
    const Term& term = prepared.term;
    const bool apart = block.terms->sums_apart;
    const bool from_residual = apart && block.residual != nullptr;
    const Variant variant{
        .rows = term.m > 0 ? 0 : block.row_kind,
        .last_columns = block.last_columns,
        .last_depth = last_depth,
        .first = block.first && term.first && blocks.begin == block.batch.begin && !from_residual,
        .last = block.last && term.last && blocks.end == block.batch.end};
    std::int64_t begin = (blocks.begin - block.batch.begin) * prepared.entries();
    std::int64_t count = blocks.size() * prepared.entries();
    if (contraction_.entry_loop >= 0 && block.batch.size() == 1) {
        begin = term.entries_begin[static_cast<std::size_t>(block.entries.begin)];
        count = term.entries_begin[static_cast<std::size_t>(block.entries.end)] - begin;
    }
    const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
    char* const c = block.c + term.c_row * row_bytes;
    if (count == 0 && !(variant.last && contraction_.epilogue != Epilogue{})) {
        if (!variant.first) return;
        if (!apart) {
            write_zeros({.first = c,
                         .rows = term.m > 0 ? term.m : block.rows,
                         .row_bytes = block.columns * size_of(contraction_.c_type),
                         .stride = term.c_step * row_bytes,
                         .around_caches = streams_ && term.last});
            return;
        }
    }
    BrgemmArgs args{.a = block.a,
                    .b = block.b,
                    .c = c,
                    .batch = count,
                    .offsets_a = prepared.offsets_a.data() + begin,
                    .offsets_b = prepared.offsets_b.data() + begin,
                    .scale = block.scale,
                    .bias = block.bias,
                    .a_ahead = block.a_ahead,
                    .b_ahead = block.b_ahead,
                    .gap_stride = contraction_.gap_stride};
    if (contraction_.adds_sums && !variant.first) args.residual = c;
    if (apart) args.c = block.sums + term.c_row * block.columns;
    if (block.residual != nullptr) args.residual = block.residual + term.c_row * row_bytes;
    if (block.relu_mask != nullptr) {
        args.relu_mask = block.relu_mask + term.c_row * contraction_.mask_row();
    }
    (*prepared.kernels[variant.index()])(args);
}

void ContractionPlan::run_term(const PreparedTerm& prepared, const Block& block) const {
    const Dimension& batch = contraction_.batch;
    if (!has_last_depth(prepared.term) || block.batch.end * batch.unit <= batch.total) {
        call(prepared, block, block.batch, false);
        return;
    }
    const Range whole{block.batch.begin, block.batch.end - 1};
    if (whole.size() > 0) call(prepared, block, whole, false);
    call(prepared, block, {whole.end, block.batch.end}, true);
}

// The residual is added first where the sum is float32 and the residual is not.
void ContractionPlan::start_from_residual(const Block& block) const {
    const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
    for (std::int64_t row = 0; row < block.rows; ++row) {
        widen_(reinterpret_cast<const std::uint16_t*>(block.residual + row * row_bytes),
               block.sums + row * block.columns, block.columns);
    }
}

void ContractionPlan::convert(const Block& block) const {
    const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
    for (std::int64_t row = 0; row < block.rows; ++row) {
        round_(block.sums + row * block.columns,
               reinterpret_cast<std::uint16_t*>(block.c + row * row_bytes), block.columns);
    }
}

void ContractionPlan::run_block(const Block& block) const {
    if (block.terms->sums_apart && block.residual != nullptr) start_from_residual(block);
    for (const PreparedTerm& term : block.terms->terms) run_term(term, block);
    if (block.terms->sums_apart) convert(block);
}

void ContractionPlan::run_body(const ContractionOperands& operands, const LoopNest::Ranges& ranges,
                               void* scratch) const {
    Block block = block_at(operands, ranges);
    block.sums = static_cast<float*>(scratch);
    run_block(block);
}

void ContractionPlan::run(const ContractionOperands& operands, void* scratch, int threads) const {
    const std::int64_t tasks = nest_.tasks();
    const std::int64_t parts = std::min<std::int64_t>(threads, tasks);
    parallel_for(parts, [&](std::int64_t part) {
        char* const sums = static_cast<char*>(scratch) + part * block_bytes_;
        nest_.run(chunk(tasks, parts, part),
                  [&](const LoopNest::Ranges& ranges) { run_body(operands, ranges, sums); });
        if (streams_) finish_zeros();
    });
}

}  // namespace dlprim
