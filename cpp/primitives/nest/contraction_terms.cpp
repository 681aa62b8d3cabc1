// Where the kernel finds the operands of every class of blocks, and how many rows take part.
#include <algorithm>

#include "brgemm/brgemm.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/indexed_product.h"

namespace dlprim {
namespace {

// The first element of a term in A and B, in elements.
struct Start {
    std::int64_t a = 0;
    std::int64_t b = 0;
};

class TermBuilder {
public:
    explicit TermBuilder(const IndexedProduct& product)
        : it_(product), element_(size_of(product.a.dtype())) {}

    void add_to(Contraction& contraction) {
        if (!it_.mapping.shifts.empty()) {
            select_shifts(contraction);
        } else if (it_.walk_letter != 0) {
            select_walk(contraction);
        } else {
            contraction.selections = {{}};
            contraction.classes = {terms_of(it_.walk.axis.phases.front().shifts)};
        }
        contraction.sliding_a = slides_;
    }

private:
    // Blocks that the same shifts reach are of one class.
    void select_walk(Contraction& contraction) {
        const Axis& axis = it_.walk.axis;
        std::vector<std::vector<Shift>> known;
        contraction.selections.resize(static_cast<std::size_t>(axis.out));
        for (const AxisPhase& phase : axis.phases) {
            for (std::int64_t i = 0; i < phase.count; ++i) {
                const std::vector<Shift> shifts = shifts_at(axis, phase, i);
                const auto same = std::find(known.begin(), known.end(), shifts);
                const auto index = static_cast<int>(same - known.begin());
                if (same == known.end()) {
                    known.push_back(shifts);
                    contraction.classes.push_back(terms_of(shifts));
                }
                contraction
                    .selections[static_cast<std::size_t>(phase.out_begin + i * phase.out_step)] = {
                    .block_class = index, .a = i * phase.in_step * it_.walk.a * element_};
            }
        }
    }

    std::vector<Term> terms_of(const std::vector<Shift>& walk) {
        if (it_.scatters()) return scattered(walk);
        std::vector<Term> terms;
        for (std::size_t i = 0; i < it_.pieces.size(); ++i) {
            const AxisPhase& phase = it_.rows.axis.phases[i];
            if (walk.empty()) {
                terms.push_back(gathered(phase, {{0, phase.count}, {}, true, true}, {}));
                continue;
            }
            for (const AxisPiece& piece : it_.pieces[i])
                terms.push_back(gathered(phase, piece, walk));
        }
        return terms;
    }

    Term gathered(const AxisPhase& phase, const AxisPiece& piece, const std::vector<Shift>& walk) {
        const std::string& depth = it_.mapping.depth;
        Term term{.m = it_.rows_are_whole() ? 0 : piece.outputs.size(),
                  .lda = it_.mapping.transposed_a ? it_.a.step(depth.back(), it_.word)
                                                  : phase.in_step * it_.rows.a,
                  .c_row = phase.out_begin + piece.outputs.begin * phase.out_step,
                  .c_step = phase.out_step,
                  .first = piece.first,
                  .last = piece.last};
        if (depth.empty() || it_.extent(depth.back()) == 0) return term;
        const bool joined = joins(piece.shifts);
        if (joined) {
            term.k = static_cast<std::int64_t>(piece.shifts.size()) * it_.extent(depth.back());
            slides_ = slides_ || term.lda < term.k;
        }
        const std::int64_t begin = piece.outputs.begin * phase.in_step;
        for (const Shift& outer : walk) {
            for (const Shift& inner : piece.shifts) {
                add_product(outer, inner, (begin + inner.offset) * it_.rows.a, term);
                if (joined) break;
            }
        }
        return term;
    }

    // Neighbouring shifts of neighbouring inputs are one long row of A and of B where nothing else
    // lies in between: with three channels, a k of 21 instead of seven of 3.
    bool joins(const std::vector<Shift>& shifts) const {
        if (it_.mapping.depth.size() == 1 || shifts.size() < 2) return false;
        for (std::size_t i = 1; i < shifts.size(); ++i) {
            if (shifts[i].index != shifts[i - 1].index + 1) return false;
            if (shifts[i].offset != shifts[i - 1].offset + 1) return false;
        }
        return true;
    }

    // Every row of A adds to the window of the result that its shifts cover, which is one long row
    // of C. Windows overlap, so rows take turns: those whose windows are apart are the rows of one
    // call.
    std::vector<Term> scattered(const std::vector<Shift>& walk) const {
        const std::int64_t columns = it_.extent(it_.mapping.columns.back());
        const std::int64_t factor = it_.rows.axis.phases.front().in_step;
        std::vector<Term> terms{{.m = it_.block_rows(), .n = columns, .k = 1, .first = true}};
        terms.front().last = walk.empty();
        if (walk.empty()) return terms;
        for (const AxisPiece& piece : it_.pieces.front()) {
            const auto shifts = static_cast<std::int64_t>(piece.shifts.size());
            const std::int64_t turns = (shifts + factor - 1) / factor;
            for (std::int64_t turn = 0; turn < std::min(turns, piece.outputs.size()); ++turn) {
                const std::int64_t row = piece.outputs.begin + turn;
                const Shift& first = piece.shifts.front();
                Term term{.m = (piece.outputs.end - row + turns - 1) / turns,
                          .n = shifts * columns,
                          .lda = turns * it_.rows.a,
                          .c_row = row * factor + first.offset,
                          .c_step = turns * factor};
                for (const Shift& outer : walk) {
                    add_product(outer, first, row * it_.rows.a, term);
                }
                terms.push_back(term);
            }
        }
        terms.back().last = true;
        return terms;
    }

    // A class for every combination of the shifts that the result has.
    void select_shifts(Contraction& contraction) {
        const std::string& shifts = it_.mapping.shifts;
        for (std::int64_t combination = 0; combination < it_.selected(); ++combination) {
            std::int64_t left = combination, walk = 0, inner = 0;
            Start start;
            for (auto index = shifts.rbegin(); index != shifts.rend(); ++index) {
                const std::int64_t value = left % it_.extent(*index);
                left /= it_.extent(*index);
                start.a += it_.a.offset(*index, value);
                start.b += it_.b.offset(*index, value);
                if (*index == it_.walk.shift) walk = value;
                if (*index == it_.depth.shift) inner = value;
            }
            contraction.selections.push_back({.block_class = static_cast<int>(combination)});
            contraction.classes.push_back(summed(walk, inner, start));
        }
    }

    // The part of a depth that a shift brings together with what it is multiplied with.
    std::vector<Term> summed(std::int64_t walk, std::int64_t inner, Start start) {
        const Line& line = it_.depth;
        const AxisPhase& phase = line.axis.phases.front();
        const bool in_rows = it_.mapping.rows.size() > 1;
        if (in_rows && line.is_sum()) return windows(walk);
        const Shift& shift = phase.shifts[static_cast<std::size_t>(inner)];
        const Range range =
            line.is_sum() ? outputs_of(line.axis, phase, shift) : Range{0, phase.count};
        Term term{.k = std::max<std::int64_t>(range.size(), 1),
                  .lda = phase.in_step * line.a,
                  .first = true,
                  .last = true};
        if (range.size() == 0) {
            term.entries_begin.assign(static_cast<std::size_t>(it_.walk.axis.out) + 1, 0);
            return {term};
        }
        start.a += (range.begin * phase.in_step + shift.offset) * line.a;
        start.b += range.begin * line.b;
        add_walk_entries(walk, start, term);
        return {term};
    }

    // All shifts at once, where they and the other index of the rows are neighbours in A: its rows
    // are windows that slide. Where the rim cuts a window, fewer rows of C are added to.
    std::vector<Term> windows(std::int64_t walk) {
        const Line& line = it_.depth;
        const AxisPhase& phase = line.axis.phases.front();
        const std::int64_t neighbours = it_.extent(it_.rows_letter());
        const std::int64_t lda = phase.in_step * line.a;
        slides_ = lda < it_.block_rows();
        std::vector<Term> terms{{.m = it_.block_rows(), .k = 1, .lda = lda, .first = true}};
        terms.front().entries_begin.assign(static_cast<std::size_t>(it_.walk.axis.out) + 1, 0);
        for (const AxisPiece& piece : cover(line.axis, phase, Cover::disjoint)) {
            if (piece.shifts.empty()) continue;
            const Shift& first = piece.shifts.front();
            Term term{.m = static_cast<std::int64_t>(piece.shifts.size()) * neighbours,
                      .k = piece.outputs.size(),
                      .lda = lda,
                      .c_row = first.index * neighbours};
            const std::int64_t input = piece.outputs.begin * phase.in_step + first.offset;
            add_walk_entries(walk, {.a = input * line.a, .b = piece.outputs.begin * line.b}, term);
            terms.push_back(term);
        }
        terms.back().last = true;
        return terms;
    }

    // An entry for every index of the entry loop whose input through the shift exists.
    void add_walk_entries(std::int64_t shift, Start start, Term& term) const {
        const Line& line = it_.walk;
        const AxisPhase& phase = line.axis.phases.front();
        const Shift& through = phase.shifts[static_cast<std::size_t>(shift)];
        const Range range = outputs_of(line.axis, phase, through);
        for (std::int64_t i = 0; i <= line.axis.out; ++i) {
            term.entries_begin.push_back(static_cast<std::int64_t>(term.entries_a.size()));
            if (i < range.begin || i >= range.end) continue;
            add_entry({.a = start.a + (i * phase.in_step + through.offset) * line.a,
                       .b = start.b + i * line.b},
                      term);
        }
    }

    // What the rows of A from element `a` on are multiplied with through two shifts.
    void add_product(const Shift& outer, const Shift& inner, std::int64_t a, Term& term) const {
        add_entry({.a = outer.offset * it_.walk.a + a,
                   .b = it_.b.offset(it_.walk.shift, outer.index) +
                        it_.b.offset(it_.rows.shift, inner.index)},
                  term);
    }

    void add_entry(Start start, Term& term) const {
        term.entries_a.push_back(start.a * element_);
        term.entries_b.push_back(start.b * element_);
    }

    const IndexedProduct& it_;
    std::int64_t element_;
    bool slides_ = false;
};

}  // namespace

void add_terms(const IndexedProduct& product, Contraction& contraction) {
    TermBuilder(product).add_to(contraction);
}

// Of a plan: their batch tables and kernels.

// Whether the last index of the batch loop has a depth of its own.
bool ContractionPlan::has_last_depth(const Term& term) const {
    const Dimension& batch = contraction_.batch;
    return batch.loop >= 0 && term.k == 0 && batch.total % batch.unit != 0;
}

ContractionPlan::PreparedTerm ContractionPlan::prepared(const Term& term) const {
    PreparedTerm made{.term = term};
    const Dimension& batch = contraction_.batch;
    const std::int64_t indices = batch.loop < 0 ? 1 : contraction_.loop_at(batch.loop).extent;
    for (std::int64_t index = 0; index < indices; ++index) {
        const std::int64_t a = batch.loop < 0 ? 0 : index * contraction_.loop_at(batch.loop).a;
        const std::int64_t b = batch.loop < 0 ? 0 : index * contraction_.loop_at(batch.loop).b;
        for (const std::int64_t entry : term.entries_a) made.offsets_a.push_back(entry + a);
        for (const std::int64_t entry : term.entries_b) made.offsets_b.push_back(entry + b);
    }
    const std::size_t heights = term.m > 0 ? 1 : row_sizes_.size();
    made.kernels.resize(heights * Variant::kPerRows, nullptr);
    return made;
}

bool ContractionPlan::is_needed(const Term& term, bool sums_apart, const Variant& variant) const {
    const Dimension& columns = contraction_.columns;
    const Dimension& batch = contraction_.batch;
    const bool ragged = has_last_depth(term);
    if (variant.last_columns ? columns.total % columns.unit == 0 : columns.total < columns.unit) {
        return false;
    }
    if (variant.last_depth ? !ragged : ragged && batch.total < batch.unit) return false;
    const bool in_parts = sum_is_split_ || ragged;
    if (variant.first) {
        if (!term.first) return false;
    } else if (term.first && !in_parts && !contraction_.accumulates && !sums_apart) {
        return false;
    }
    return variant.last ? term.last : !term.last || in_parts;
}

std::int64_t ContractionPlan::columns_of(const Variant& variant) const {
    const Dimension& columns = contraction_.columns;
    return variant.last_columns ? columns.total % columns.unit : columns.unit;
}

BrgemmSpec ContractionPlan::spec_of(const Term& term, bool sums_apart,
                                    const Variant& variant) const {
    const Dimension& batch = contraction_.batch;
    const bool empty = term.entries_a.empty();
    BrgemmSpec spec{
        .m = term.m > 0 ? term.m : row_sizes_[static_cast<std::size_t>(variant.rows)],
        .n = term.n > 0 ? term.n : columns_of(variant),
        .lda = term.lda,
        .ldb = contraction_.ldb,
        .a_type = contraction_.dtype,
        .b_type = contraction_.b_type,
        .c_type = sums_apart ? DType::f32 : contraction_.c_type,
        .trans_a = contraction_.trans_a,
        .sliding_a = contraction_.sliding_a,
        .beta = variant.first ? 0 : 1,
        .addressing = Addressing::offset,
        .prefetch_a = (!ahead_.empty() || contraction_.fetching.elsewhere) &&
                      !contraction_.fetching.only_b && !contraction_.fetching.far_b,
        .prefetch_b = contraction_.fetching.elsewhere || contraction_.fetching.next_b ||
                      (!ahead_.empty() && contraction_.entry_loop >= 0),
        .prefetch_c = streams_ && !sums_apart,
        .fetch_rows = fetch_rows_,
    };
    spec.k = empty || term.k > 0  ? std::max<std::int64_t>(term.k, 1)
             : variant.last_depth ? batch.total % batch.unit
                                  : batch.unit;
    spec.ldc = term.c_step * (sums_apart ? columns_of(variant) : contraction_.ldc);
    if (empty) spec.lda = 0;
    // A single row is followed by none, however far it would be.
    if (spec.m == 1 && !spec.trans_a) spec.lda = 0;
    if (spec.m == 1 && contraction_.gaps == Gaps{}) spec.ldc = 0;
    if (variant.last) {
        spec.epilogue = contraction_.epilogue;
        spec.gaps = contraction_.gaps;
    }
    if (sums_apart) spec.epilogue.residual = false;
    if (contraction_.adds_sums && !variant.first) {
        spec.beta = 0;
        spec.epilogue.residual = true;
    }
    if (spec.epilogue.relu_mask) spec.ldmask = term.c_step * contraction_.mask_row();
    return spec;
}

}  // namespace dlprim
