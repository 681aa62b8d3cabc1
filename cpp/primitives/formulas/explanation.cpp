#include "primitives/formulas/explanation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "primitives/mapping/instruction_match.h"
#include "primitives/products/product_options.h"

namespace dlprim {
namespace {

constexpr std::size_t kBestFew = 4;

std::string cycles_of(const ProductOption& option) {
    return std::to_string(static_cast<std::int64_t>(std::llround(option.cycles))) +
           " cycles expected";
}

// "rows n (64), p (100)"
std::string loops_of(const char* what, const std::vector<ProductIndex>& indices,
                     const StridedProduct& product) {
    std::string text;
    for (const ProductIndex& it : indices) {
        text += (text.empty() ? std::string(what) + " " : ", ") + names_of(it.members, product) +
                " (" + std::to_string(it.extent) + ")";
    }
    return text;
}

}  // namespace

Explanation::Explanation(BoundStatement statement, std::optional<StridedProduct> product,
                         std::string chosen)
    : statement_(std::move(statement)), product_(std::move(product)), chosen_(std::move(chosen)) {}

std::string Explanation::heading() const {
    const std::string reason = reason_for_none(statement_);
    if (!product_ || (chosen_ == "rows" && !reason.empty())) {
        return "no product of matrices here, as " + reason + ": rows\n";
    }
    const std::string what =
        reason.empty() ? "product of matrices by " : "product of a matrix and vectors by ";
    if (chosen_.starts_with("rows") || chosen_.starts_with("sums")) return what + chosen_ + "\n";
    return what + instruction_for(product_->dtype, product_->b_type, usable_isa()).described() +
           "\n";
}

std::string Explanation::loops() const {
    const StridedProduct& it = *product_;
    std::string text;
    const auto add = [&](const std::string& part) {
        if (!part.empty()) text += (text.empty() ? "  " : "; ") + part;
    };
    add(loops_of("rows", it.rows, it));
    add(loops_of("columns", it.columns, it));
    add(loops_of("sums", it.sums, it));
    add(loops_of("outside", it.outer, it));
    const auto add_sliding = [&](const std::vector<ProductIndex>& along, const char* operand,
                                 std::int64_t ProductIndex::* stride) {
        for (const ProductIndex& sum : it.sums) {
            for (const ProductIndex& index : along) {
                if (!slides(sum, index, stride)) continue;
                add(names_of(sum.members, it) + " slides along " + names_of(index.members, it) +
                    " (" + operand + " is Toeplitz)");
            }
        }
    };
    add_sliding(it.rows, "A", &ProductIndex::a);
    add_sliding(it.columns, "B", &ProductIndex::b);
    return text + "\n";
}

// The chosen one in front of the others.
std::string Explanation::options(bool all) const {
    std::string first, others;
    std::size_t left_out = 0, shown = 0;
    for (const ProductOption& it : product_options(*product_)) {
        const std::string name = to_string(it, *product_);
        if (name == chosen_) {
            first = "  " + cycles_of(it) + ", chosen: " + name + "\n";
        } else if (all || shown < kBestFew) {
            ++shown;
            others += "  " + cycles_of(it) + ": " + name + "\n";
        } else {
            ++left_out;
        }
    }
    if (left_out > 0) others += "  and " + std::to_string(left_out) + " more\n";
    return first + others;
}

std::string Explanation::described(const Explained& asked) const {
    if (asked.instruction) {
        const InstructionForm& form = instruction_named(*asked.instruction);
        return product_ ? described_matches(*product_, form, asked.all)
                        : "no product of matrices here, as " + reason_for_none(statement_) + "\n";
    }
    return heading() + (product_ ? loops() + options(asked.all) : "");
}

}  // namespace dlprim
