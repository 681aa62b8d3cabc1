// What is decided while a definition is compiled: into which pieces statements are cut, what runs a
// product, in which order its loops go. The cost models decide, unless somebody has measured and
// says otherwise, by the names of decisions. What is said and does not fit is left to the models,
// so that decisions for other shapes, or for what another decision has changed, do no harm.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "jit/machine.h"
#include "lang/fusion.h"
#include "primitives/formulas/statement_binding.h"
#include "primitives/formulas/step_group.h"

namespace dlprim {

class ProductPass;
struct BoundProduct;

// By the names of decisions; "convolutions" as "direct" leaves Winograd's algorithm out.
using Choices = std::map<std::string, std::string>;

struct Decision {
    std::string name = {};
    std::string chosen = {};
    std::vector<std::string> options = {};  // the model's choice first
    // Of the product whose order it is; of that, orders that the model has not thought of may be
    // tried, too.
    std::shared_ptr<const ProductPass> product = {};
};

class Decisions {
public:
    explicit Decisions(Choices wanted = {}) : wanted_(std::move(wanted)) {}

    // Number of the option that is wanted, 0 where none of them is.
    std::size_t choose(const std::string& name, const std::vector<std::string>& options);
    bool sums_directly() const;
    void choose_order(const std::string& name, const std::shared_ptr<ProductPass>& product);

    // Options of an order, as many as `orders`, are ranked now.
    std::vector<Decision> made(int orders) const;

private:
    // Of parts of one loop that differ in size the first one.
    void add(Decision decision);

    Choices wanted_;
    std::vector<Decision> made_ = {};
    std::set<std::string, std::less<>> names_ = {};  // of these
};

// Loops of a group; none where it is not cut.
std::vector<StepGroup::Loop> chosen_pieces(const StatementGroup& group,
                                           const std::vector<StatementBinding>& bindings,
                                           const Machine& machine, Decisions& decisions);

struct ChosenRun {
    decltype(Step::what) what = {};
    std::shared_ptr<const Explanation> why = {};
};

// What runs a statement and those that are its end; `number` is in the names of the decisions.
ChosenRun chosen_run(const BoundProduct& product, const std::string& number, Decisions& decisions);

}  // namespace dlprim
