#include "primitives/formulas/row_fusion.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "primitives/formulas/product_chain.h"
#include "primitives/products/product_run.h"
#include "primitives/statements/fused_rows.h"

namespace dlprim {
namespace {

// Of one program; programs are not longer than that, and not searched for further.
constexpr std::size_t kMostStatements = 16;

// Whether rows are the cheapest that runs it.
bool runs_by_rows(const BoundStatement& statement) {
    if (chain_of(statement).size() > 1) return false;
    const auto product = BoundProduct{.statement = statement}.strided();
    if (!product) return true;
    const ProductOption best = product_options(*product).front();
    return !best.way && !best.winograd && !best.narrow;
}

template <class Binding, class Body>
void for_statements(Binding& binding, const Body& body) {
    body(binding);
    for (auto& it : binding.fused) body(it);
}

// None where an array is written that a read of it does not follow along the loops of pieces.
std::optional<std::vector<FusedStatement>> fused_statements(const StatementBinding& binding) {
    std::vector<const ArrayPlace*> arrays, written;
    const auto is_array = [](const ArrayPlace& a, const ArrayPlace& b) {
        return a.of == b.of && a.number == b.number;
    };
    const auto number_of = [&](const ArrayPlace& place) {
        const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const ArrayPlace* it) {
            return is_array(*it, place) && it->moves == place.moves;
        });
        const auto number = static_cast<std::size_t>(found - arrays.begin());
        if (found == arrays.end()) arrays.push_back(&place);
        return number;
    };
    std::vector<FusedStatement> statements;
    for_statements(binding, [&](const StatementBinding& it) {
        FusedStatement& made =
            statements.emplace_back(FusedStatement{.it = it.statement, .is_stored = it.is_stored});
        for (const ArrayPlace& place : it.operands) made.operands.push_back(number_of(place));
        made.result = number_of(it.result);
        written.push_back(&it.result);
    });
    for (const ArrayPlace* result : written) {
        const auto strays = [&](const ArrayPlace* it) {
            return is_array(*it, *result) && it->moves != result->moves;
        };
        if (std::any_of(arrays.begin(), arrays.end(), strays)) return std::nullopt;
    }
    return statements;
}

// Those that may be a part of one program.
std::vector<bool> candidates(const std::vector<StatementBinding>& bindings) {
    std::vector<bool> made;
    for (const StatementBinding& it : bindings) {
        made.push_back(it.next.empty() && it.places.empty() && runs_by_rows(it.statement));
    }
    return made;
}

// As many from `first` on as are one program.
std::size_t fused_from(const std::vector<StatementBinding>& bindings, std::size_t first,
                       const std::vector<bool>& candidates, const IsUsed& is_used,
                       StatementBinding& fused) {
    StatementBinding longer = bindings[first];
    std::size_t found = 1;
    const std::size_t end = std::min(bindings.size(), first + kMostStatements);
    for (std::size_t i = first + 1; i < end && candidates[first]; ++i) {
        if (!candidates[i] || !bindings[i].copies.empty()) break;
        longer.fused.push_back(bindings[i]);
        for_statements(longer, [&](StatementBinding& it) {
            it.is_stored = is_used(it, longer.number, bindings[i].number);
        });
        const auto statements = fused_statements(longer);
        if (!statements || !FusedRows::fit(*statements)) continue;
        fused = longer;
        found = i - first + 1;
    }
    return found;
}

}  // namespace

Step fused_step(const StatementBinding& binding) {
    auto rows = std::make_shared<const FusedRows>(fused_statements(binding).value());
    Step made;
    for (const FusedRows::Access& it : rows->accesses()) {
        const StatementBinding& of = it.statement == 0 ? binding : binding.fused[it.statement - 1];
        made.operands.push_back(it.operand == FusedRows::Access::kResult ? of.result
                                                                         : of.operands[it.operand]);
    }
    made.what = std::move(rows);
    made.result = made.operands.back();  // the last one that is stored
    made.statement = binding.number;
    made.more = static_cast<int>(binding.fused.size());
    return made;
}

std::vector<int> unstored_statements(const std::vector<StatementBinding>& bindings) {
    std::vector<int> numbers;
    for (const StatementBinding& binding : bindings) {
        for_statements(binding, [&](const StatementBinding& it) {
            if (!it.is_stored) numbers.push_back(it.number);
        });
    }
    return numbers;
}

std::vector<StatementBinding> with_rows_fused(const std::vector<StatementBinding>& bindings,
                                              const IsUsed& is_used, Decisions& decisions) {
    if (bindings.size() < 2) return bindings;
    const std::vector<bool> may_be = candidates(bindings);
    std::vector<StatementBinding> chosen;
    for (std::size_t i = 0; i < bindings.size();) {
        StatementBinding fused;
        std::size_t count = fused_from(bindings, i, may_be, is_used, fused);
        const std::string name = "rows " + std::to_string(bindings[i].number + 1);
        if (count > 1 && decisions.choose(name, {"one program", "apart"}) == 0) {
            chosen.push_back(std::move(fused));
        } else {
            count = 1;
            chosen.push_back(bindings[i]);
        }
        i += count;
    }
    return chosen;
}

}  // namespace dlprim
