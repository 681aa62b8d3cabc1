#include "primitives/formulas/piece_loops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace dlprim {
namespace {

// Of the second cache: what stays there without pieces, and what a piece takes of it.
constexpr double kStays = 0.5;
constexpr double kPiece = 0.25;
// Enough pieces for threads to share, as long as there is that much to do in each.
constexpr double kPieces = 12;
constexpr double kLeastPiece = 256 * 1024;  // bytes

// Of an array and a piece.
struct Use {
    double bytes = 0;    // of the largest access
    bool moves = false;  // along the last loop
    int count = 0;
};

class PieceSearch {
public:
    PieceSearch(const StatementGroup& group, const std::vector<StatementBinding>& bindings,
                const Machine& machine, double size)
        : group_(group), bindings_(bindings), machine_(machine), size_(size) {}

    std::vector<StepGroup::Loop> run() const {
        std::vector<StepGroup::Loop> loops;
        const double used = bindings_.size() > 1 ? used_again(loops) : moving(loops);
        if (size_ == 1 && used <= kStays * machine_.l2) return {};
        const double target =
            size_ * std::min(kPiece * machine_.l2, std::max(moving(loops) / kPieces, kLeastPiece));
        if (moving(loops) <= target) return {};
        for (const std::string& index : group_.common) {
            if (bindings_.size() == 1 && !moves_all(index)) return {};
            const std::int64_t extent = extent_of(index);
            loops.push_back({.index = index, .end = extent});
            for (std::int64_t parts = 1; parts <= extent; ++parts) {
                loops.back().step = (extent + parts - 1) / parts;
                if (moving(loops) > target) continue;
                loops.back().step = even_step(extent, loops.back().step);
                return size_ != 1 || pays(loops) ? loops : std::vector<StepGroup::Loop>();
            }
        }
        return {};
    }

private:
    // Without a rest, where that takes no more than twice as many pieces.
    static std::int64_t even_step(std::int64_t extent, std::int64_t most) {
        for (std::int64_t step = most; 2 * step > most; --step) {
            if (extent % step == 0) return step;
        }
        return most;
    }

    std::int64_t extent_of(const std::string& index) const {
        const auto& indices = bindings_.front().statement.indices;
        return std::find_if(indices.begin(), indices.end(),
                            [&](const IndexRange& it) { return it.name == index; })
            ->extent;
    }

    // Extent of an index in a piece.
    static std::int64_t extent_in(const IndexRange& index,
                                  const std::vector<StepGroup::Loop>& loops) {
        for (const StepGroup::Loop& loop : loops) {
            if (loop.index == index.name) return loop.step;
        }
        return index.extent;
    }

    // Of an operand in a piece; windows that slide over each other have theirs once.
    static double elements_in(const BoundStatement& it, const BoundOperand& operand,
                              const std::vector<StepGroup::Loop>& loops) {
        std::vector<std::pair<double, double>> steps;  // from the nearest to the farthest; extents
        for (std::size_t i = 0; i < it.indices.size(); ++i) {
            const double step = std::abs(static_cast<double>(operand.strides[i]));
            if (step > 0) steps.emplace_back(step, extent_in(it.indices[i], loops));
        }
        std::sort(steps.begin(), steps.end());
        double elements = 1, span = 1;
        for (const auto& [step, extent] : steps) {
            span += (extent - 1) * step;
            elements = std::min(elements * extent, span);
        }
        return elements;
    }

    std::vector<Use> uses(const std::vector<StepGroup::Loop>& loops) const {
        using Array = std::pair<ArrayPlace::Of, std::int64_t>;
        using Uses = std::map<Array, Use>;
        const auto add = [&](Uses& to, const BoundStatement& it, const BoundOperand& operand,
                             const ArrayPlace& place) {
            bool moves = loops.empty();
            for (std::size_t i = 0; i < it.indices.size(); ++i) {
                moves =
                    moves || (operand.strides[i] != 0 && it.indices[i].name == loops.back().index);
            }
            const double bytes =
                elements_in(it, operand, loops) * static_cast<double>(size_of(operand.dtype));
            Use& use = to[{place.of, place.number}];
            use = {std::max(use.bytes, bytes), use.moves || moves, use.count + 1};
        };
        const auto add_operands = [&](Uses& to, const StatementBinding& binding,
                                      const ArrayPlace* but) {
            for (std::size_t i = 0; i < binding.operands.size(); ++i) {
                const ArrayPlace& place = binding.operands[i];
                if (but && place.of == but->of && place.number == but->number) continue;
                add(to, binding.statement, binding.statement.operands[i], place);
            }
        };
        const auto add_statement = [&](Uses& to, const StatementBinding& binding) {
            add_operands(to, binding, nullptr);
            add(to, binding.statement, binding.statement.result, binding.result);
        };
        Uses found;
        // One program uses an array once, and what it does not store not at all.
        const auto add_fused = [&](const StatementBinding& binding) {
            Uses own;
            std::set<Array> unstored;
            const auto add_part = [&](const StatementBinding& part) {
                add_statement(own, part);
                if (!part.is_stored) unstored.insert({part.result.of, part.result.number});
            };
            add_part(binding);
            for (const StatementBinding& it : binding.fused) add_part(it);
            for (const auto& [array, it] : own) {
                if (unstored.contains(array)) continue;
                Use& use = found[array];
                use = {std::max(use.bytes, it.bytes), use.moves || it.moves, use.count + 1};
            }
        };
        for (const StatementBinding& binding : bindings_) {
            if (!binding.fused.empty()) {
                add_fused(binding);
                continue;
            }
            add_statement(found, binding);
            // The kernel does not read its result again for the end.
            for (const StatementBinding& next : binding.next) {
                add_operands(found, next, &binding.result);
            }
        }
        std::vector<Use> all;
        for (const auto& [place, use] : found) all.push_back(use);
        return all;
    }

    // Of one statement alone: a further product, whose operands are packed while they are in the
    // cache.
    bool moves_all(const std::string& index) const {
        const BoundStatement& it = bindings_.front().statement;
        const auto at = std::find_if(it.indices.begin(), it.indices.end(),
                                     [&](const IndexRange& range) { return range.name == index; });
        const auto place = static_cast<std::size_t>(at - it.indices.begin());
        return it.operands.size() == 2 && std::all_of(it.operands.begin(), it.operands.end(),
                                                      [&](const BoundOperand& operand) {
                                                          return operand.strides[place] != 0;
                                                      });
    }

    double moving(const std::vector<StepGroup::Loop>& loops) const {
        double bytes = 0;
        for (const Use& it : uses(loops)) bytes += it.moves ? it.bytes : 0;
        return bytes;
    }

    double used_again(const std::vector<StepGroup::Loop>& loops) const {
        double bytes = 0;
        for (const Use& it : uses(loops)) bytes += it.moves && it.count > 1 ? it.bytes : 0;
        return bytes;
    }

    // What every piece reads as a whole stays in the cache, or is less than what pieces save.
    bool pays(const std::vector<StepGroup::Loop>& loops) const {
        double still = 0, saved = 0;
        for (const Use& it : uses(loops)) {
            (it.moves ? saved : still) += it.moves ? it.bytes * (it.count - 1) : it.bytes;
        }
        return still <= kStays * machine_.l2 || still <= saved;
    }

    const StatementGroup& group_;
    const std::vector<StatementBinding>& bindings_;
    const Machine& machine_;
    double size_;
};

}  // namespace

std::vector<StepGroup::Loop> piece_loops(const StatementGroup& group,
                                         const std::vector<StatementBinding>& bindings,
                                         const Machine& machine, double size) {
    return PieceSearch(group, bindings, machine, size).run();
}

}  // namespace dlprim
