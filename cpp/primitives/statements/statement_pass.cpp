#include "primitives/statements/statement_pass.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "primitives/programs/row_tasks.h"
#include "primitives/statements/row_expression.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// Of a task: enough to hide what starting it takes.
constexpr std::int64_t kTaskElements = 32 * 1024;
// Rows and columns that are shared among threads one set after the other.
constexpr std::int64_t kSharedElements = 512 * 1024;
// In front of what is read along rows, in bytes: one operand alone is too little for the hardware's
// own fetching.
constexpr std::int32_t kAhead = 1024;
// Strips of columns are this wide at least.
constexpr std::int64_t kFewestColumns = 512;

bool contains(const std::vector<std::size_t>& all, std::size_t one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

std::int64_t row_stride(const BoundOperand& of, const PassRoles& roles) {
    return roles.row == PassRoles::kNone ? 0 : of.strides[roles.row];
}

}  // namespace

// Where nothing is summed in columns, an operand that is the same for all rows is a tensor whose
// rows lie on each other: its elements are in the cache, and the rows are walked one by one.
RowValue named(RowBuilder& row, const BoundOperand& of, const PassRoles& roles, bool sums_columns) {
    const bool moves_down = row_stride(of, roles) != 0;
    if (of.strides[roles.column] == 0) return moves_down ? row.per_row() : row.scalar();
    return moves_down || !sums_columns ? row.tensor(of.dtype) : row.column(of.dtype);
}

// A kernel with its scratch.
class StatementPass::Runner {
public:
    Runner(const RowKernel& kernel, std::int64_t columns)
        : kernel_(kernel),
          scratch_(WorkspacePool::lasting(), kernel.scratch_floats(columns) * size_of(DType::f32)) {
    }

    void run(RowArgs& args) const {
        args.scratch = reinterpret_cast<float*>(scratch_.data());
        kernel_(args);
    }

private:
    const RowKernel& kernel_;
    WorkspacePool::Lease scratch_;
};

// The expression at every place of what is written out, and its way into the result.
class StatementPass::Program {
public:
    Program(const BoundStatement& statement, const PassRoles& roles)
        : statement_(statement),
          roles_(roles),
          sums_columns_(roles.kind == RowWalk::down_columns && roles.keeps_sums) {
        for (const BoundOperand& it : statement.operands) {
            operands_.push_back(named(row_, it, roles, sums_columns_));
        }
    }

    bool reads_result() const {
        if (sums_columns_) return false;
        return roles_.kind == RowWalk::down_columns || joins();
    }

    RowSpec spec() {
        if (roles_.kind == RowWalk::along_rows) row_.fetch_ahead(kAhead);
        std::int64_t places = 1;
        for (const std::size_t it : roles_.unrolled) places *= statement_.indices[it].extent;
        RowValue before = 0;
        if (reads_result()) {
            before = roles_.kind == RowWalk::along_rows ? row_.per_row()
                                                        : row_.tensor(statement_.result.dtype);
        }
        RowValue all = value_at(0);
        for (std::int64_t i = 1; i < places; ++i) all = joined_at(i, all);
        if (roles_.kind == RowWalk::along_rows) all = joined_row(statement_.reduction, all);
        if (reads_result()) all = joined(statement_.reduction, before, all);
        if (sums_columns_) {
            row_.add_to_column(all);
        } else if (roles_.kind == RowWalk::along_rows) {
            row_.store_per_row(all);
        } else {
            row_.store(statement_.result.dtype, all);
        }
        return row_.spec();
    }

private:
    bool joins() const {
        return !statement_.initializes && statement_.reduction != Reduction::none;
    }

    RowValue value_at(std::int64_t place) {
        return row_value(row_, statement_.value, reads_at(place));
    }

    // A product that is added is rounded with the sum, once.
    RowValue joined_at(std::int64_t place, const RowValue& before) {
        const Expression& value = statement_.value;
        const bool is_product = value.kind == Expression::Kind::call && value.name == "*";
        if (statement_.reduction != Reduction::sum || !is_product) {
            return joined(statement_.reduction, before, value_at(place));
        }
        const std::vector<RowValue> reads = reads_at(place);
        const auto factor = [&](const Expression& it) { return row_value(row_, it, reads); };
        return multiply_add(factor(value.operands[0]), factor(value.operands[1]), before);
    }

    std::vector<RowValue> reads_at(std::int64_t place) {
        std::vector<RowValue> reads;
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            const BoundOperand& it = statement_.operands[i];
            std::int64_t rest = place, offset = 0;
            bool moves = false;
            for (const std::size_t index : roles_.unrolled) {
                const std::int64_t extent = statement_.indices[index].extent;
                offset += rest % extent * it.strides[index];
                moves = moves || it.strides[index] != 0;
                rest /= extent;
            }
            reads.push_back(moves ? row_.at(operands_[i], offset * size_of(it.dtype))
                                  : operands_[i]);
        }
        return reads;
    }

    const BoundStatement& statement_;
    const PassRoles& roles_;
    bool sums_columns_;
    RowBuilder row_;
    std::vector<RowValue> operands_ = {};
};

StatementPass::StatementPass(const BoundStatement& statement, const PassRoles& roles)
    : kind_(roles.kind), nothing_(identity_of(statement.reduction)) {
    Program program(statement, roles);
    const RowSpec spec = program.spec();
    kernel_ = row_kernel(spec);
    if (roles.leaves_caches && kind_ == RowWalk::map) around_caches_ = row_kernel(streaming(spec));
    fills_ = kind_ == RowWalk::down_columns && statement.initializes;
    std::vector<const BoundOperand*> named;
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
        named.push_back(&statement.operands[i]);
        slots_.push_back({.operand = i});
    }
    // The result is read first, and written by the last one.
    slots_.resize(slots_.size() + (program.reads_result() ? 2 : 1), {.is_result = true});
    named.resize(slots_.size(), &statement.result);
    walk(statement, roles, named);
}

StatementPass::StatementPass(const RowSpec& program, const BoundStatement& accesses,
                             const PassRoles& roles)
    : kernel_(row_kernel(program)), kind_(roles.kind) {
    std::vector<const BoundOperand*> named;
    for (std::size_t i = 0; i < accesses.operands.size(); ++i) {
        named.push_back(&accesses.operands[i]);
        slots_.push_back({.operand = i});
    }
    walk(accesses, roles, named);
}

void StatementPass::walk(const BoundStatement& statement, const PassRoles& roles,
                         const std::vector<const BoundOperand*>& named) {
    columns_ = statement.indices[roles.column].extent;
    if (roles.row != PassRoles::kNone) rows_ = statement.indices[roles.row].extent;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const std::int64_t bytes = size_of(named[i]->dtype);
        slots_[i].offset = named[i]->offset * bytes;
        slots_[i].row = row_stride(*named[i], roles) * bytes;
        slots_[i].column = named[i]->strides[roles.column] * bytes;
    }
    add_loops(statement, roles, named);
    const auto extent = [&](const char* role, std::size_t index) {
        if (index == PassRoles::kNone) return std::string();
        const IndexRange& it = statement.indices[index];
        return std::string(role) + it.name + " (" + std::to_string(it.extent) + ")";
    };
    described_ = extent("columns ", roles.column) + extent(", rows ", roles.row);
    for (const std::size_t it : roles.unrolled) described_ += extent(", written out ", it);
    if (outer_count_ > 1) described_ += ", " + std::to_string(outer_count_) + " times";
    if (inner_count_ > 1) described_ += ", in " + std::to_string(inner_count_) + " turns";
    described_ += ": program " + to_string(kernel_->spec());
}

std::string StatementPass::described() const { return described_; }

void StatementPass::add_loops(const BoundStatement& statement, const PassRoles& roles,
                              const std::vector<const BoundOperand*>& named) {
    for (std::size_t i = 0; i < statement.indices.size(); ++i) {
        if (i == roles.column || i == roles.row || contains(roles.unrolled, i)) continue;
        Loop loop{.extent = statement.indices[i].extent};
        for (const BoundOperand* it : named)
            loop.steps.push_back(it->strides[i] * size_of(it->dtype));
        const bool within = kind_ == RowWalk::down_columns && statement.indices[i].reduced;
        (within ? inner_count_ : outer_count_) *= loop.extent;
        (within ? inner_ : outer_).push_back(std::move(loop));
    }
}

void StatementPass::move(RowArgs& args, const std::vector<Loop>& loops, std::int64_t index) const {
    for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
        const std::int64_t place = index % loop->extent;
        index /= loop->extent;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            RowArgs::Operand& it = args.operands[i];
            it.data = static_cast<char*>(it.data) + place * loop->steps[i];
        }
    }
}

void StatementPass::run(const std::vector<char*>& operands, char* result) const {
    RowArgs args;
    args.rows = rows_;
    args.columns = columns_;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const Slot& slot = slots_[i];
        args.operands[i] = {(slot.is_result ? result : operands[slot.operand]) + slot.offset,
                            slot.row};
    }
    const double elements =
        static_cast<double>(rows_ * columns_) * static_cast<double>(outer_count_ * inner_count_);
    const WorkOf work(elements * static_cast<double>(kernel_->spec().instructions.size()),
                      elements * static_cast<double>(slots_.size() * sizeof(float)));
    if (kind_ == RowWalk::down_columns) return run_columns(args);
    run_outside(args);
}

const RowKernel& StatementPass::kernel_for(const RowArgs& args) const {
    const RowArgs::Operand& it = args.operands[slots_.size() - 1];
    const bool begins_lines = reinterpret_cast<std::uintptr_t>(it.data) % kCacheLineBytes == 0 &&
                              it.stride % kCacheLineBytes == 0;
    return around_caches_ && begins_lines ? *around_caches_ : *kernel_;
}

void StatementPass::run_outside(const RowArgs& args) const {
    const std::int64_t elements = rows_ * columns_;
    if (outer_count_ == 1 || elements >= kSharedElements) {
        for (std::int64_t i = 0; i < outer_count_; ++i) {
            RowArgs part = args;
            move(part, outer_, i);
            run_rows(kernel_for(part), part);
        }
        return;
    }
    const Blocks tasks{outer_count_, std::max<std::int64_t>(1, kTaskElements / elements)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            RowArgs part = args;
            move(part, outer_, i);
            Runner(kernel_for(part), columns_).run(part);
        }
    });
}

// Every task has some columns of results, and all that falls on them.
void StatementPass::run_columns(const RowArgs& args) const {
    const std::int64_t rows = inner_count_ * rows_;
    const std::int64_t width =
        rounded_up(std::max(kTaskElements / rows, kFewestColumns), kCacheLineBytes);
    const Blocks strips{columns_, width};
    const std::int64_t elements = rows * std::min(width, columns_);
    const Blocks tasks{outer_count_ * strips.count(),
                       std::max<std::int64_t>(1, kTaskElements / elements)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Runner runner(*kernel_, strips.at(0).size());
        const Range range = tasks.at(task);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            RowArgs part = args;
            move(part, outer_, i / strips.count());
            run_strip(runner, part, strips.at(i % strips.count()));
        }
    });
}

void StatementPass::run_strip(const Runner& runner, RowArgs strip, Range columns) const {
    strip.columns = columns.size();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        RowArgs::Operand& it = strip.operands[i];
        it.data = static_cast<char*>(it.data) + columns.begin * slots_[i].column;
    }
    if (fills_) {
        auto* const sums = static_cast<float*>(strip.operands[slots_.size() - 1].data);
        const auto count = static_cast<std::size_t>(columns.size());
        if (std::bit_cast<std::uint32_t>(nothing_) == 0) {
            std::memset(sums, 0, count * sizeof(float));
        } else {
            std::fill_n(sums, count, nothing_);
        }
    }
    for (std::int64_t i = 0; i < inner_count_; ++i) {
        RowArgs part = strip;
        move(part, inner_, i);
        runner.run(part);
    }
}

}  // namespace dlprim
