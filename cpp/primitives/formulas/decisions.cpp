#include "primitives/formulas/decisions.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "primitives/formulas/narrow_pass.h"
#include "primitives/formulas/piece_loops.h"
#include "primitives/formulas/product_pass.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {
namespace {

// Of sums along the rows of a matrix: multiplications in a cycle and cycles of a call, about.
constexpr double kRowLanes = 16;
constexpr double kRowCall = 500;
// Ways that are expected to take so many times as long as the best one are no options.
constexpr double kHopeless = 4;

struct PieceSize {
    const char* name;
    double size;  // times the estimated one
};
constexpr std::array<PieceSize, 6> kPieceSizes = {
    {{"as estimated", 1}, {"none", 0}, {"1/4", 0.25}, {"1/2", 0.5}, {"2", 2}, {"4", 4}}};

using Runs = decltype(Step::what);

struct Option {
    std::string name;
    std::function<Runs()> make;
};

// The model's choice first.
std::vector<Option> options_for(const BoundStatement& statement, const StridedProduct& product,
                                const std::string& number, Decisions& decisions) {
    const auto ways = product_ways(product, this_machine());
    if (ways.empty() && is_int8(product.dtype)) {
        throw std::invalid_argument(
            "the factors of a product are 8-bit arrays, expected no number beside them");
    }
    const double cycles =
        ways.empty() ? std::numeric_limits<double>::infinity() : ways.front().cycles;
    std::vector<Option> options;
    for (const ProductWay& way : ways) {
        if (way.cycles > kHopeless * cycles) break;
        options.push_back({to_string(way), [&product, &decisions, number, way] {
                               auto pass = std::make_shared<ProductPass>(product, way);
                               decisions.choose_order("order " + number, pass);
                               return std::shared_ptr<const ProductPass>(std::move(pass));
                           }});
    }
    const auto add = [&](bool is_best, Option option) {
        options.insert(is_best ? options.begin() : options.end(), std::move(option));
    };
    const bool few = std::min(extent_of(product.rows), extent_of(product.columns)) <= kFewVectors;
    const ProductIndex& inner = product.sums.back();
    const bool along_rows = few && !is_int8(product.dtype) && inner.a == 1 && inner.b == 1;
    if (ways.empty() || along_rows) {
        add(ways.empty() || cycles > product.flops() / 2 / kRowLanes + kRowCall,
            {"rows", [&] { return std::make_shared<const RowStatement>(statement); }});
    }
    if (auto narrow = NarrowPass::of(product)) {
        const bool is_best = narrow->cycles() < cycles;
        add(is_best, {"sums along rows", [narrow = *std::move(narrow)] {
                          return std::make_shared<const NarrowPass>(narrow);
                      }});
    }
    return options;
}

}  // namespace

void Decisions::add(Decision decision) {
    const bool is_known = std::any_of(made_.begin(), made_.end(),
                                      [&](const Decision& it) { return it.name == decision.name; });
    if (!is_known) made_.push_back(std::move(decision));
}

std::size_t Decisions::choose(const std::string& name, const std::vector<std::string>& options) {
    const auto wanted = wanted_.find(name);
    auto chosen = options.begin();
    if (wanted != wanted_.end()) chosen = std::find(chosen, options.end(), wanted->second);
    if (chosen == options.end()) chosen = options.begin();
    add({.name = name, .chosen = *chosen, .options = options});
    return static_cast<std::size_t>(chosen - options.begin());
}

void Decisions::choose_order(const std::string& name, const std::shared_ptr<ProductPass>& product) {
    const auto wanted = wanted_.find(name);
    try {
        if (wanted != wanted_.end()) product->set_schedule(parse_schedule(wanted->second));
    } catch (const std::invalid_argument&) {  // it stays the model's
    }
    add({.name = name, .chosen = to_string(product->nest().schedule()), .product = product});
}

std::vector<Decision> Decisions::made(int orders) const {
    std::vector<Decision> all = made_;
    for (Decision& it : all) {
        if (!it.product) continue;
        for (const Schedule& order : it.product->nest().candidates(orders)) {
            it.options.push_back(to_string(order));
        }
    }
    return all;
}

std::vector<StepGroup::Loop> chosen_pieces(const StatementGroup& group,
                                           const std::vector<StatementBinding>& bindings,
                                           const Machine& machine, Decisions& decisions) {
    auto loops = piece_loops(group, bindings, machine);
    if (group.common.empty() || (loops.empty() && bindings.size() == 1)) return loops;
    std::vector<std::string> names;
    for (const PieceSize& it : kPieceSizes) names.emplace_back(it.name);
    const std::string name = "pieces " + std::to_string(group.first + 1);
    const double size = kPieceSizes.at(decisions.choose(name, names)).size;
    if (size == 0) return {};
    return size == 1 ? loops : piece_loops(group, bindings, machine, size);
}

Runs chosen_run(const BoundStatement& statement, const std::vector<double>& uses,
                const std::string& number, Decisions& decisions) {
    auto product = product_in(statement);
    if (!product || !product->is_of_matrices()) {
        return std::make_shared<const RowStatement>(statement);
    }
    product->uses_a = uses[static_cast<std::size_t>(product->operand_a)];
    product->uses_b = uses[static_cast<std::size_t>(product->operand_b)];
    const auto options = options_for(statement, *product, number, decisions);
    std::vector<std::string> names;
    for (const Option& it : options) names.push_back(it.name);
    return options[decisions.choose("product " + number, names)].make();
}

}  // namespace dlprim
