#include "primitives/formulas/decisions.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "primitives/formulas/explanation.h"
#include "primitives/formulas/piece_loops.h"
#include "primitives/products/product_run.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {
namespace {

// Behind the first few, ways that are expected to take so many times as long as the best one are no
// options.
constexpr double kHopeless = 4;
constexpr std::size_t kAlwaysOptions = 4;
constexpr std::size_t kMostOptions = 24;

struct PieceSize {
    const char* name;
    double size;  // times the estimated one
};
constexpr std::array<PieceSize, 6> kPieceSizes = {
    {{"as estimated", 1}, {"none", 0}, {"1/4", 0.25}, {"1/2", 0.5}, {"2", 2}, {"4", 4}}};

// The model's choice in front.
std::vector<ProductOption> hopeful_options(const StridedProduct& product, bool directly) {
    std::vector<ProductOption> options;
    std::size_t ways = 0;
    double most = 0;
    for (ProductOption& it : product_options(product)) {
        if (directly && it.winograd) continue;
        if (options.empty()) most = kHopeless * it.cycles;
        const bool is_hopeless = it.way && ++ways > kAlwaysOptions && it.cycles > most;
        if (!is_hopeless && options.size() < kMostOptions) options.push_back(std::move(it));
    }
    return options;
}

}  // namespace

void Decisions::add(Decision decision) {
    if (names_.insert(decision.name).second) made_.push_back(std::move(decision));
}

std::size_t Decisions::choose(const std::string& name, const std::vector<std::string>& options) {
    const auto wanted = wanted_.find(name);
    auto chosen = options.begin();
    if (wanted != wanted_.end()) chosen = std::find(chosen, options.end(), wanted->second);
    if (chosen == options.end()) chosen = options.begin();
    add({.name = name, .chosen = *chosen, .options = options});
    return static_cast<std::size_t>(chosen - options.begin());
}

bool Decisions::sums_directly() const {
    const auto wanted = wanted_.find("convolutions");
    return wanted != wanted_.end() && wanted->second == "direct";
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
    if (bindings.size() == 1 && !bindings.front().fused.empty()) return {};
    auto loops = piece_loops(group, bindings, machine);
    if (group.common.empty() || (loops.empty() && bindings.size() == 1)) return loops;
    std::vector<std::string> names;
    for (const PieceSize& it : kPieceSizes) names.emplace_back(it.name);
    const std::string name = "pieces " + std::to_string(group.first + 1);
    const double size = kPieceSizes.at(decisions.choose(name, names)).size;
    if (size == 0) return {};
    return size == 1 ? loops : piece_loops(group, bindings, machine, size);
}

ChosenRun chosen_run(const BoundProduct& product, const std::string& number, Decisions& decisions) {
    const auto strided = product.strided();
    ChosenRun made;
    if (!strided) {
        made.why = std::make_shared<const Explanation>(product.statement, std::nullopt, "");
        if (product.next.empty()) {
            made.what = std::make_shared<const RowStatement>(product.statement);
        } else {
            made.what = std::make_shared<const ProductRun>(product);
        }
        return made;
    }
    const std::vector<ProductOption> options = hopeful_options(*strided, decisions.sums_directly());
    std::vector<std::string> names;
    for (const ProductOption& it : options) names.push_back(to_string(it, *strided));
    const std::size_t chosen = decisions.choose("product " + number, names);
    auto run = std::make_shared<const ProductRun>(product, options[chosen]);
    if (const auto pass = run->kernel_pass()) decisions.choose_order("order " + number, pass);
    made.what = std::move(run);
    made.why = std::make_shared<const Explanation>(product.statement, strided, names[chosen]);
    return made;
}

}  // namespace dlprim
