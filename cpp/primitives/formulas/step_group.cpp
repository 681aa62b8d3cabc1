#include "primitives/formulas/step_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "primitives/formulas/explanation.h"
#include "primitives/formulas/gather.h"
#include "primitives/products/product_run.h"
#include "primitives/statements/fused_rows.h"
#include "primitives/statements/row_statement.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

using Product = std::shared_ptr<const ProductRun>;
using Rows = std::shared_ptr<const RowStatement>;
using Fused = std::shared_ptr<const FusedRows>;

void* address(const ArrayPlace& place, const StepArrays& arrays,
              const std::vector<std::int64_t>& values, char* own) {
    const auto number = static_cast<std::size_t>(place.number);
    char* base = nullptr;
    switch (place.of) {
        case ArrayPlace::Of::parameter:
            base = static_cast<char*>(const_cast<void*>(arrays.parameters[number]));
            break;
        case ArrayPlace::Of::result: base = static_cast<char*>(arrays.results[number]); break;
        case ArrayPlace::Of::scratch: base = arrays.scratch + place.number; break;
        case ArrayPlace::Of::own: base = own + place.number; break;
    }
    for (std::size_t i = 0; i < place.moves.size(); ++i) base += values[i] * place.moves[i];
    return base;
}

// " 1", "s 1 and 2", "s 1 to 3"
std::string numbers_of(const Step& step) {
    const std::string first = " " + std::to_string(step.statement + 1);
    if (step.more == 0) return first;
    return "s" + first + (step.more == 1 ? " and " : " to ") +
           std::to_string(step.statement + 1 + step.more);
}

// Every line, with an end of the last one.
std::string indented(const std::string& lines, const std::string& indent) {
    std::string text;
    std::size_t at = 0;
    while (at < lines.size()) {
        const std::size_t end = std::min(lines.find('\n', at), lines.size());
        text += indent + lines.substr(at, end - at) + "\n";
        at = end + 1;
    }
    return text;
}

}  // namespace

ArrayPlace StepGroup::own(std::int64_t bytes) {
    ArrayPlace made{.of = ArrayPlace::Of::own, .number = own_bytes_};
    own_bytes_ += aligned(bytes);
    return made;
}

double StepGroup::uses_of_packed(const ArrayPlace& place) const {
    const bool moves = !has_loops() || place.of == ArrayPlace::Of::own || place.moves.back() != 0;
    return moves ? 1 : static_cast<double>(loops_.back().count());
}

void StepGroup::add(Step step) {
    const auto* const product = std::get_if<Product>(&step.what);
    for (int operand = 0; product != nullptr && has_loops() && operand < 2; ++operand) {
        const ArrayPlace& place = step.operands[static_cast<std::size_t>(operand)];
        const std::int64_t bytes = (*product)->packed_bytes(operand);
        if (bytes > 0 && uses_of_packed(place) > 1)
            packed_.push_back({steps_.size(), operand, own(bytes).number});
    }
    steps_.push_back(std::make_shared<const Step>(std::move(step)));
}

std::int64_t StepGroup::pieces() const {
    std::int64_t count = 1;
    for (const Loop& loop : loops_) count *= loop.count();
    return count;
}

StepGroup::Piece StepGroup::piece(std::int64_t number, char* own) const {
    Piece made{.values = std::vector<std::int64_t>(loops_.size()), .own = own};
    for (std::size_t i = loops_.size(); i-- > 0;) {
        const Loop& loop = loops_[i];
        made.values[i] = loop.first + number % loop.count() * loop.step;
        number /= loop.count();
    }
    return made;
}

void StepGroup::run(const StepArrays& arrays) const {
    if (!has_loops()) return run_steps(arrays, {});
    const int threads = num_threads();
    const WorkspacePool::Lease own(WorkspacePool::lasting(), threads * own_bytes_);
    // Of each thread the value of the outer loops that its operands are packed for.
    std::vector<std::int64_t> packed(static_cast<std::size_t>(threads), -1);
    parallel_ranges(pieces(), threads, [&](Range range, int seat) {
        std::int64_t& packed_here = packed[static_cast<std::size_t>(seat)];
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            const Piece it = piece(i, own.data() + seat * own_bytes_);
            const std::int64_t outer = i / loops_.back().count();
            if (outer != packed_here) pack(arrays, it);
            packed_here = outer;
            run_steps(arrays, it);
        }
    });
}

void StepGroup::pack(const StepArrays& arrays, const Piece& piece) const {
    for (const Packed& it : packed_) {
        const Step& step = *steps_[it.step];
        const ArrayPlace& from = step.operands[static_cast<std::size_t>(it.operand)];
        std::get<Product>(step.what)->pack(
            it.operand, address(from, arrays, piece.values, piece.own), piece.own + it.place);
    }
}

void StepGroup::run_steps(const StepArrays& arrays, const Piece& piece) const {
    std::vector<const void*> operands;
    auto packed = packed_.begin();
    for (std::size_t number = 0; number < steps_.size(); ++number) {
        const Step& step = *steps_[number];
        const auto at = [&](const ArrayPlace& place) {
            return address(place, arrays, piece.values, piece.own);
        };
        void* const result = at(step.result);
        if (step.zeroed_bytes > 0) {
            std::memset(result, 0, static_cast<std::size_t>(step.zeroed_bytes));
        }
        operands.resize(step.operands.size());
        std::transform(step.operands.begin(), step.operands.end(), operands.begin(), at);
        if (const auto* const product = std::get_if<Product>(&step.what)) {
            ProductPass::Factors ready = {};
            for (; packed != packed_.end() && packed->step == number; ++packed) {
                ready.at(static_cast<std::size_t>(packed->operand)) = piece.own + packed->place;
            }
            (*product)->run(operands, result, ready);
        } else if (const auto* const rows = std::get_if<Rows>(&step.what)) {
            (*rows)->run(operands, result);
        } else if (const auto* const fused = std::get_if<Fused>(&step.what)) {
            (*fused)->run(operands);
        } else {
            std::get<std::shared_ptr<const Gather>>(step.what)->run(operands, result);
        }
    }
}

std::string StepGroup::described(const Explained& asked) const {
    std::string text, indent;
    if (has_loops()) {
        indent = "  ";
        text = "for";
        for (const Loop& loop : loops_) {
            text += " " + loop.index + " in " + std::to_string(loop.first) + ":" +
                    std::to_string(loop.end) +
                    (loop.step > 1 ? " by " + std::to_string(loop.step) : "");
        }
        text += ":\n";
    }
    for (const auto& step : steps_) {
        const std::string head = "statement" + numbers_of(*step) + ": ";
        std::string body = step->why ? step->why->described(asked) : "";
        if (std::holds_alternative<Fused>(step->what)) {
            body = std::string("no products of matrices here") +
                   (asked.instruction ? "\n" : ": rows, as one program\n");
        }
        if (!asked.instruction) {
            const std::string runs =
                std::visit([](const auto& it) { return it->described(); }, step->what);
            body += (body.empty() || runs.empty() ? "" : "  ") + runs;
        }
        if (!body.empty()) text += indented(head + body, indent);
    }
    return text;
}

}  // namespace dlprim
