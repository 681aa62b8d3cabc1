#include <algorithm>

#include "brgemm/amx/kept_tiles.h"
#include "brgemm/brgemm.h"
#include "jit/machine.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/reorder/serial_moves.h"
#include "primitives/reorder/zero_rows.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

char* at(const void* base, std::int64_t offset) {
    return static_cast<char*>(const_cast<void*>(base)) + offset;
}

}  // namespace

// What one body call works on.
struct ContractionPlan::Block {
    const PreparedClass* terms = nullptr;
    BrgemmArgs args = {};  // of a term that begins with the first row, where C is not summed apart
    float* sums = nullptr;
    Range batch{0, 1};
    Range entries{0, 0};
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_kind = 0;
    bool last_columns = false;
    bool first = false;
    bool last = false;
};

// From these operands to those that follow when the innermost of the ahead_ loops takes a step, or
// where it has ended, starts again with a step of the next one.
void ContractionPlan::set_ahead(const LoopNest::Ranges& ranges, Block& block) const {
    for (const int index : ahead_) {
        const ContractionLoop& loop = contraction_.loop_at(index);
        const Range range = ranges[static_cast<std::size_t>(index)];
        const bool ends = range.end >= loop.extent;
        const std::int64_t steps = ends ? -range.begin : range.size();
        block.args.a_ahead += steps * loop.a;
        block.args.b_ahead += steps * loop.b;
        if (index == contraction_.entry_loop) {
            block.args.a_ahead += steps * contraction_.fetching.entry_a;
            block.args.b_ahead += steps * contraction_.fetching.entry_b;
        } else if (index == contraction_.selector_loop) {
            const auto now = static_cast<std::size_t>(range.begin);
            const auto next = static_cast<std::size_t>(ends ? 0 : range.end);
            block.args.a_ahead += contraction_.selections[next].a - contraction_.selections[now].a;
        }
        if (!ends) break;
    }
}

// Which loops run while a block of B stays, and so how many rows of C share what is fetched: none
// where B is in the L2 cache once its first rows have used it.
void ContractionPlan::share_far_b(const Schedule& schedule) {
    const auto is_row = [&](int index) {
        const ContractionLoop& loop = contraction_.loop_at(index);
        return loop.b == 0 && !loop.sum;
    };
    std::vector<std::int64_t> sizes;
    for (const ContractionLoop& loop : contraction_.loops) sizes.push_back(loop.extent);
    std::vector<std::int64_t> shared = sizes;
    for (const Level& level : schedule.levels) {
        const int index = contraction_.loop_of(level.letter);
        std::int64_t& size = sizes[static_cast<std::size_t>(index)];
        if (level.step >= size) continue;
        size = level.step;
        if (is_row(index)) {
            sharing_.push_back({.loop = index, .step = level.step});
        } else {
            sharing_.clear();
            shared = sizes;
        }
    }
    for (Sharing& it : sharing_) it.extent = shared[static_cast<std::size_t>(it.loop)];
    const Dimension& rows = contraction_.rows;
    std::int64_t fetch_rows = rows.loop < 0 ? contraction_.block_rows : rows.unit;
    const bool stays = contraction_.bytes_b <= this_machine().l2;
    bool again = false;
    for (int i = 0; i < static_cast<int>(shared.size()); ++i) {
        if (!is_row(i)) continue;
        fetch_rows *= shared[static_cast<std::size_t>(i)];
        again = again || shared[static_cast<std::size_t>(i)] < contraction_.loop_at(i).extent;
    }
    if (!again || !stays) fetch_rows_ = fetch_rows;
}

// Bytes of the next block of B that the calls on this one fetch before this call.
std::int64_t ContractionPlan::begin_of_share(const LoopNest::Ranges& ranges) const {
    const int batch = contraction_.batch.loop;
    if (batch < 0) return 0;
    double before = 0;
    double part = 1;
    for (const Sharing& it : sharing_) {
        const auto extent = static_cast<double>(it.extent);
        const std::int64_t begin = ranges[static_cast<std::size_t>(it.loop)].begin % it.extent;
        before += part * static_cast<double>(begin) / extent;
        part *= static_cast<double>(it.step) / extent;
    }
    const std::int64_t bytes =
        ranges[static_cast<std::size_t>(batch)].size() * contraction_.loop_at(batch).b;
    return static_cast<std::int64_t>(before * static_cast<double>(bytes));
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
    BrgemmArgs& args = block.args;
    args.a = at(operands.a, offset.a + selection.a);
    args.b = at(operands.b, offset.b);
    args.c = at(operands.c, offset.c);
    args.gap_stride = contraction_.gap_stride;
    if (operands.bias != nullptr) {
        args.bias = reinterpret_cast<const float*>(at(operands.bias, offset.bias));
    }
    if (operands.scale != nullptr) {
        const bool by_column = contraction_.epilogue.scale == Scale::column;
        args.scale =
            reinterpret_cast<const float*>(at(operands.scale, by_column ? offset.bias : 0));
    }
    if (operands.int_bias != nullptr) {
        args.int_bias = reinterpret_cast<const std::int32_t*>(at(operands.int_bias, offset.bias));
    }
    args.lowest = operands.range.lowest;
    args.highest = operands.range.highest;
    args.zero_point_c = operands.range.zero_point;
    args.residual_scale = operands.residual_scale;
    args.inner_lowest = operands.inner.lowest;
    args.inner_highest = operands.inner.highest;
    args.inner_scale = operands.inner.scale;
    args.inner_shift = operands.inner.shift;
    if (operands.residual != nullptr) args.residual = at(operands.residual, offset.c);
    if (operands.relu_mask != nullptr)
        args.relu_mask = operands.relu_mask + contraction_.mask_offset(offset.c);
    set_ahead(ranges, block);
    if (fetch_rows_ > 0) args.b_ahead += begin_of_share(ranges);
    if (operands.ahead_a != nullptr) {
        args.a_ahead = at(operands.ahead_a, offset.ahead_a) - static_cast<const char*>(args.a);
        args.b_ahead = at(operands.ahead_b, offset.ahead_b) - static_cast<const char*>(args.b);
    }
    if (contraction_.batch.loop >= 0) block.batch = range_of(contraction_.batch.loop);
    if (contraction_.entry_loop >= 0) block.entries = range_of(contraction_.entry_loop);
    const Dimension& rows = contraction_.rows;
    block.rows = rows.loop < 0 ? contraction_.block_rows : rows.size(range_of(rows.loop));
    block.row_kind =
        std::lower_bound(row_sizes_.begin(), row_sizes_.end(), block.rows) - row_sizes_.begin();
    block.columns = columns_at(ranges);
    block.last_columns = block.columns < contraction_.columns.unit;
    return block;
}

std::int64_t ContractionPlan::columns_at(const LoopNest::Ranges& ranges) const {
    const Dimension& columns = contraction_.columns;
    const Range block = ranges[static_cast<std::size_t>(columns.loop)];
    if (columns.part_loop < 0) return columns.size(block);
    const std::int64_t part = ranges[static_cast<std::size_t>(columns.part_loop)].begin;
    const std::int64_t before = (block.begin * columns.parts + part) * columns.unit;
    return std::clamp<std::int64_t>(columns.total - before, 0, columns.unit);
}

ContractionPlan::Variant ContractionPlan::variant_of(const PreparedTerm& prepared,
                                                     const Block& block, Range blocks,
                                                     bool last_depth) const {
    const Term& term = prepared.term;
    const bool from_residual = block.terms->sums_apart && block.args.residual != nullptr;
    return {
        .rows = term.m > 0 ? 0 : block.row_kind,
        .last_columns = block.last_columns,
        .last_depth = last_depth,
        .first = block.first && term.first && blocks.begin == block.batch.begin && !from_residual,
        .last = block.last && term.last && blocks.end == block.batch.end};
}

ContractionPlan::Call ContractionPlan::call_of(const PreparedTerm& prepared, const Block& block,
                                               Range blocks, const Variant& variant) const {
    const Term& term = prepared.term;
    const bool apart = block.terms->sums_apart;
    std::int64_t begin = (blocks.begin - block.batch.begin) * prepared.entries();
    std::int64_t count = blocks.size() * prepared.entries();
    if (contraction_.entry_loop >= 0 && block.batch.size() == 1) {
        begin = term.entries_begin[static_cast<std::size_t>(block.entries.begin)];
        count = term.entries_begin[static_cast<std::size_t>(block.entries.end)] - begin;
    }
    const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
    char* const c = at(block.args.c, term.c_row * row_bytes);
    Call made{.kernel = prepared.kernels[variant.index()], .args = block.args};
    BrgemmArgs& args = made.args;
    args.batch = count;
    args.offsets_a = prepared.offsets_a.data() + begin;
    args.offsets_b = prepared.offsets_b.data() + begin;
    args.c = apart ? block.sums + term.c_row * block.columns : static_cast<void*>(c);
    if (args.residual != nullptr) {
        args.residual = at(args.residual, term.c_row * row_bytes);
    } else if (contraction_.adds_sums && !variant.first) {
        args.residual = c;
    }
    if (args.relu_mask != nullptr) args.relu_mask += term.c_row * contraction_.mask_row();
    return made;
}

void ContractionPlan::call(const PreparedTerm& prepared, const Block& block, Range blocks,
                           bool last_depth) const {
    const Term& term = prepared.term;
    const Variant variant = variant_of(prepared, block, blocks, last_depth);
    const Call made = call_of(prepared, block, blocks, variant);
    if (made.args.batch == 0 && !(variant.last && contraction_.epilogue != Epilogue{})) {
        if (!variant.first) return;
        if (!block.terms->sums_apart) {
            const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
            write_zeros({.first = static_cast<char*>(made.args.c),
                         .rows = term.m > 0 ? term.m : block.rows,
                         .row_bytes = block.columns * size_of(contraction_.c_type),
                         .stride = term.c_step * row_bytes,
                         .around_caches = streams_ && term.last});
            return;
        }
    }
    (*made.kernel)(made.args);
}

bool ContractionPlan::ends_short(const PreparedTerm& prepared, const Block& block) const {
    const Dimension& batch = contraction_.batch;
    return has_last_depth(prepared.term) && block.batch.end * batch.unit > batch.total;
}

ContractionPlan::Call ContractionPlan::call_of(const ContractionOperands& operands,
                                               const LoopNest::Ranges& ranges) const {
    const Block block = block_at(operands, ranges);
    const std::vector<PreparedTerm>& terms = block.terms->terms;
    if (terms.size() != 1 || block.terms->sums_apart || ends_short(terms.front(), block)) return {};
    const Variant variant = variant_of(terms.front(), block, block.batch, false);
    const Call made = call_of(terms.front(), block, block.batch, variant);
    return made.args.batch > 0 ? made : Call{};
}

void ContractionPlan::run_term(const PreparedTerm& prepared, const Block& block) const {
    if (!ends_short(prepared, block)) {
        call(prepared, block, block.batch, false);
        return;
    }
    const Range whole{block.batch.begin, block.batch.end - 1};
    if (whole.size() > 0) call(prepared, block, whole, false);
    call(prepared, block, {whole.end, block.batch.end}, true);
}

void ContractionPlan::run_block(const Block& block) const {
    const bool apart = block.terms->sums_apart;
    const std::int64_t row_bytes = contraction_.ldc * size_of(contraction_.c_type);
    // The residual is added first where the sum is float32 and the residual is not.
    const std::int64_t sums_row = block.columns * size_of(DType::f32);
    if (apart && block.args.residual != nullptr) {
        widen_rows({.src = block.args.residual,
                    .src_row = row_bytes,
                    .dst = block.sums,
                    .dst_row = sums_row,
                    .rows = block.rows,
                    .columns = block.columns});
    }
    for (const PreparedTerm& term : block.terms->terms) run_term(term, block);
    if (apart) {
        round_rows({.src = block.sums,
                    .src_row = sums_row,
                    .dst = block.args.c,
                    .dst_row = row_bytes,
                    .rows = block.rows,
                    .columns = block.columns});
    }
}

void ContractionPlan::run_body(const ContractionOperands& operands, const LoopNest::Ranges& ranges,
                               void* scratch, std::uint64_t* tiles) const {
    Block block = block_at(operands, ranges);
    if (block.columns == 0) return;
    block.sums = static_cast<float*>(scratch);
    block.args.tiles = tiles;
    run_block(block);
}

void ContractionPlan::run(const ContractionOperands& operands, void* scratch, int threads) const {
    for_threads(std::min(threads, num_threads())).run_shared(operands, scratch, threads);
}

void ContractionPlan::run_shared(const ContractionOperands& operands, void* scratch,
                                 int threads) const {
    parallel_ranges(nest_.tasks(), threads, [&](Range tasks, int seat) {
        KeptTiles tiles;
        char* const sums = static_cast<char*>(scratch) + seat * block_bytes_;
        nest_.run(tasks, [&](const LoopNest::Ranges& ranges) {
            run_body(operands, ranges, sums, tiles.state());
        });
        if (streams_) finish_zeros();
    });
}

}  // namespace dlprim
