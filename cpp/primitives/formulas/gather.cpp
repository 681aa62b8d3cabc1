#include "primitives/formulas/gather.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "jit/machine.h"
#include "primitives/statements/row_statement.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaskBytes = 64 * 1024;
constexpr std::int64_t kDenseTaskBytes = 256 * 1024;
// Rows of a task, unless one sum has more, and rows that are asked for ahead.
constexpr std::int64_t kMostListed = 1024;
constexpr std::int64_t kMostAhead = 1024;  // bytes of a row
constexpr std::int32_t kPlacesAhead = 16;

// Of rows that a list names, or its places where those have bytes.
RowSpec sum_of_listed(const BoundStatement& statement, std::int32_t place_bytes, bool is_large) {
    RowBuilder row;
    if (place_bytes > 0 && is_large) row.fetch_ahead(kPlacesAhead);
    const RowValue x = row.listed_at_places(statement.operands[0].dtype, place_bytes);
    const RowValue total = row.carried(0);
    row.carry(total, total + x);
    row.store(statement.result.dtype, last(total));
    return row.spec();
}

}  // namespace

Gather::Gather(const BoundStatement& statement, std::vector<GatheredPlace> places)
    : statement_(statement),
      places_(std::move(places)),
      bytes_(size_of(statement.operands[0].dtype)) {
    if (places_.size() > kMostGathered) {
        throw std::invalid_argument("a read has " + std::to_string(places_.size()) +
                                    " places that are read, expected at most " +
                                    std::to_string(kMostGathered));
    }
    require_numbers(statement.result, "the result");
    double source_bytes = static_cast<double>(bytes_);
    for (const GatheredPlace& place : places_) {
        source_bytes =
            std::max(source_bytes, static_cast<double>(place.extent * place.stride * bytes_));
    }
    is_large_ = source_bytes > this_machine().l2;
    for (std::size_t i = 0; i < statement.indices.size(); ++i) {
        Loop loop{.extent = statement.indices[i].extent, .steps = {statement.result.strides[i]}};
        for (const BoundOperand& it : statement.operands) loop.steps.push_back(it.strides[i]);
        const bool is_summed = statement.indices[i].reduced;
        const bool around = is_summed || std::any_of(loop.steps.begin() + 2, loop.steps.end(),
                                                     [](std::int64_t step) { return step != 0; });
        (is_summed ? summed_ : count_) *= around ? loop.extent : 1;
        auto& loops = around ? around_ : inside_;
        loops.insert(
            is_summed ? loops.end() : loops.begin() + (around ? std::ptrdiff_t(outer_++) : 0),
            std::move(loop));
    }
    if (around_.empty()) {
        around_.push_back({.steps = std::vector<std::int64_t>(places_.size() + 2)});
    }
    const bool converts = statement.operands[0].dtype != statement.result.dtype;
    if (statement.reduction == Reduction::sum || converts) {
        result_step_ = result_step();
        kernel_ = row_kernel(sum_of_listed(statement, result_step_ ? place_bytes() : 0, is_large_));
    }
    std::stable_sort(inside_.begin(), inside_.end(), [](const Loop& left, const Loop& right) {
        return left.steps[0] > right.steps[0];
    });
    while (!inside_.empty() && inside_.back().steps[0] == row_ && inside_.back().steps[1] == row_) {
        row_ *= inside_.back().extent;
        inside_.pop_back();
    }
}

std::optional<std::int64_t> Gather::result_step() const {
    const bool is_still = std::all_of(around_.begin(), around_.end(),
                                      [](const Loop& it) { return it.steps[1] == 0; });
    if (places_.size() != 1 || !places_.front().is_checked || !is_still) return {};
    // Of results behind each other, and of places; none while nothing has more than one value.
    std::optional<std::int64_t> to;
    std::int64_t results = 1, places = 1;
    for (std::size_t i = around_.size(); i-- > 0;) {
        const Loop& it = around_[i];
        if (it.extent == 1) continue;
        if (it.steps[2] != places * (place_bytes() / size_of(DType::s32))) return {};
        places *= it.extent;
        if (i >= outer_) continue;
        if (it.steps[0] != to.value_or(it.steps[0]) * results) return {};
        to = to.value_or(it.steps[0]);
        results *= it.extent;
    }
    return to.value_or(0);
}

void Gather::copy(const char* source, char* result, std::size_t loop) const {
    const auto bytes = static_cast<std::size_t>(row_ * bytes_);
    if (loop == inside_.size()) {
        source != nullptr ? std::memcpy(result, source, bytes) : std::memset(result, 0, bytes);
        return;
    }
    const Loop& it = inside_[loop];
    for (std::int64_t i = 0; i < it.extent; ++i) {
        copy(source == nullptr ? nullptr : source + i * it.steps[1] * bytes_,
             result + i * it.steps[0] * bytes_, loop + 1);
    }
}

void Gather::sum(RowArgs& args, std::size_t loop) const {
    if (loop == inside_.size()) return (*kernel_)(args);
    const Loop& it = inside_[loop];
    const RowArgs::Operand source = args.operands[0], result = args.operands[1];
    for (std::int64_t i = 0; i < it.extent; ++i) {
        args.operands[0].data = static_cast<char*>(source.data) + i * it.steps[1] * bytes_;
        args.operands[1].data =
            static_cast<char*>(result.data) + i * it.steps[0] * size_of(statement_.result.dtype);
        sum(args, loop + 1);
    }
}

// The values of the loops around, from a number of them on.
class Gather::Walk {
public:
    Walk(const Gather& gather, Operands operands, std::int64_t number)
        : it_(gather), operands_(operands), values_(gather.around_.size()) {
        to_ = it_.statement_.result.offset;
        from_ = it_.statement_.operands[0].offset;
        for (std::size_t i = 0; i < it_.places_.size(); ++i) {
            at_[i] = it_.statement_.operands[i + 1].offset;
        }
        for (std::size_t loop = values_.size(); loop-- > 0;) {
            const std::int64_t extent = it_.around_[loop].extent;
            values_[loop] = number % extent;
            number /= extent;
            move(it_.around_[loop], values_[loop]);
        }
    }

    // Calls sink(row) for the next ones, so many.
    template <class Sink>
    void take(std::int64_t count, const Sink& sink) {
        const Loop& last = it_.around_.back();
        while (count > 0) {
            const std::int64_t together = std::min(count, last.extent - values_.back());
            it_.places_.size() == 1 ? take_at_place(together, sink)
                                    : take_at_places(together, sink);
            advance(together);
            count -= together;
        }
    }

    std::int64_t to() const { return to_; }  // of the next one

private:
    // So many values of the last loop from here.
    template <class Sink>
    void take_at_place(std::int64_t count, const Sink& sink) const {
        const Loop& last = it_.around_.back();
        const GatheredPlace place = it_.places_.front();
        const std::int64_t to_step = last.steps[0], from_step = last.steps[1];
        std::int64_t to = to_, from = from_;
        for_values(operands_[1], place.is_wide, at_[0], last.steps[2], count,
                   [&](std::int64_t value) {
                       const bool is_inside = value >= 0 && value < place.extent;
                       sink(Row{to, from + (is_inside ? value * place.stride : 0), is_inside});
                       to += to_step;
                       from += from_step;
                   });
    }

    template <class Sink>
    void take_at_places(std::int64_t count, const Sink& sink) const {
        const Loop& last = it_.around_.back();
        for (std::int64_t ahead = 0; ahead < count; ++ahead) {
            Row row{to_ + ahead * last.steps[0], from_ + ahead * last.steps[1]};
            for (std::size_t i = 0; i < it_.places_.size(); ++i) {
                const GatheredPlace& place = it_.places_[i];
                const std::int64_t at = at_[i] + ahead * last.steps[i + 2];
                for_values(operands_[i + 1], place.is_wide, at, 0, 1, [&](std::int64_t value) {
                    row.is_inside = row.is_inside && value >= 0 && value < place.extent;
                    if (row.is_inside) row.from += value * place.stride;
                });
            }
            sink(row);
        }
    }

    void advance(std::int64_t count) {
        for (std::size_t loop = values_.size(); loop-- > 0; count = 1) {
            move(it_.around_[loop], count);
            values_[loop] += count;
            if (values_[loop] < it_.around_[loop].extent) return;
            move(it_.around_[loop], -values_[loop]);
            values_[loop] = 0;
        }
    }

    void move(const Loop& loop, std::int64_t count) {
        to_ += count * loop.steps[0];
        from_ += count * loop.steps[1];
        for (std::size_t i = 0; i < it_.places_.size(); ++i) at_[i] += count * loop.steps[i + 2];
    }

    const Gather& it_;
    Operands operands_;
    std::vector<std::int64_t> values_;
    std::int64_t to_ = 0;
    std::int64_t from_ = 0;
    std::array<std::int64_t, kMostGathered> at_ = {};
};

// No hardware foresees where a row begins: some are asked for ahead.
void Gather::ask_for(const char* source, const Row& row) const {
    const std::int64_t bytes = std::min(row_ * bytes_, kMostAhead);
    for (std::int64_t byte = 0; byte < bytes; byte += kCacheLineBytes) {
        __builtin_prefetch(source + row.from * bytes_ + byte);
    }
}

void Gather::copy_rows(Operands operands, char* result, Range range) const {
    const char* const source = static_cast<const char*>(operands[0]);
    Walk walk(*this, operands, range.begin);
    std::vector<Row> rows;
    rows.reserve(static_cast<std::size_t>(range.size()));
    walk.take(range.size(), [&](const Row& row) { rows.push_back(row); });
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i + kRowsAhead < rows.size()) ask_for(source, rows[i + kRowsAhead]);
        const Row& it = rows[i];
        copy(it.is_inside ? source + it.from * bytes_ : nullptr, result + it.to * bytes_, 0);
    }
}

void Gather::sum_rows(Operands operands, char* result, Range range) const {
    const WorkspacePool::Lease scratch(WorkspacePool::lasting(),
                                       kernel_->scratch_floats(row_) * size_of(DType::f32));
    const char* const source = static_cast<const char*>(operands[0]);
    Walk walk(*this, operands, range.begin * summed_);
    std::vector<RowArgs::Listed> list(static_cast<std::size_t>(range.size() * summed_));
    std::vector<std::int64_t> counts, places;
    RowArgs::Listed* listed = list.data();
    for (std::int64_t i = 0; i < range.size(); ++i) {
        const RowArgs::Listed* const begin = listed;
        places.push_back(walk.to());
        walk.take(summed_, [&](const Row& row) {
            if (!row.is_inside) return;
            if (is_large_ && listed - list.data() < kMostListed) ask_for(source, row);
            (listed++)->element = row.from;
        });
        counts.push_back(listed - begin);
    }
    RowArgs args;
    args.columns = row_;
    args.scratch = reinterpret_cast<float*>(scratch.data());
    args.list = list.data();
    const auto to = [&](std::int64_t i) { return places[static_cast<std::size_t>(i)]; };
    // Results that lie as far apart as the first two of them.
    for (std::int64_t first = 0; first < range.size(); first += args.rows) {
        const std::int64_t step = first + 1 < range.size() ? to(first + 1) - to(first) : 0;
        args.rows = 1;
        while (first + args.rows < range.size() &&
               to(first + args.rows) - to(first + args.rows - 1) == step) {
            ++args.rows;
        }
        args.counts = counts.data() + first;
        args.operands[0] = {const_cast<char*>(source), 0};
        const std::int64_t element = size_of(statement_.result.dtype);
        args.operands[1] = {result + to(first) * element, step * element};
        sum(args, 0);
        for (std::int64_t i = 0; i < args.rows; ++i) args.list += args.counts[i];
    }
}

void Gather::sum_dense(Operands operands, char* result, Range range) const {
    const WorkspacePool::Lease scratch(WorkspacePool::lasting(),
                                       kernel_->scratch_floats(row_) * size_of(DType::f32));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(range.size()), summed_);
    const std::int64_t element = size_of(statement_.result.dtype);
    const char* const places =
        static_cast<const char*>(operands[1]) + statement_.operands[1].offset * size_of(DType::s32);
    RowArgs args;
    args.counts = counts.data();
    args.places = places + range.begin * summed_ * place_bytes();
    args.places_end = places + count_ * summed_ * place_bytes();
    args.extent = places_.front().extent;
    args.distance = places_.front().stride;
    args.rows = range.size();
    args.columns = row_;
    args.scratch = reinterpret_cast<float*>(scratch.data());
    args.operands[0] = {
        static_cast<char*>(const_cast<void*>(operands[0])) + statement_.operands[0].offset * bytes_,
        0};
    args.operands[1] = {result + (statement_.result.offset + range.begin * *result_step_) * element,
                        *result_step_ * element};
    sum(args, 0);
}

void Gather::run(Operands operands, void* result) const {
    std::int64_t elements = row_ * summed_;
    for (const Loop& loop : inside_) elements *= loop.extent;
    if (elements == 0 && !kernel_) return;
    const std::int64_t bytes = elements * bytes_;
    const WorkOf work(0, static_cast<double>(bytes * count_));
    const std::int64_t most = kernel_ ? kMostListed / std::max<std::int64_t>(summed_, 1) : count_;
    const std::int64_t task_bytes = result_step_ ? kDenseTaskBytes : kTaskBytes;
    const Blocks tasks{
        count_,
        std::max<std::int64_t>(std::min(task_bytes / std::max<std::int64_t>(bytes, 1), most), 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        char* const to = static_cast<char*>(result);
        if (!kernel_) return copy_rows(operands, to, range);
        result_step_ ? sum_dense(operands, to, range) : sum_rows(operands, to, range);
    });
}

std::string Gather::described() const {
    return std::string(kernel_ ? "sums of " : "") + std::to_string(count_ * summed_) + " rows of " +
           std::to_string(row_) + " elements at places that are read";
}

}  // namespace dlprim
