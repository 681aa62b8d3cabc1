#include "statement_problem.h"

#include <algorithm>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "jit/element_reference.h"
#include "primitives/statements/row_statement.h"

namespace dlprim::testing {
namespace {

const std::map<std::string, double (*)(double)> kOne = {
    {"-", [](double x) { return -x; }},
    {"!", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"exp", std::exp},
    {"log", std::log},
    {"sqrt", std::sqrt},
    {"rint", std::nearbyint},
    {"fabs", std::fabs},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"tanh", std::tanh},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"relu", [](double x) { return std::max(x, 0.0); }},
    {"gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"float", [](double x) { return x; }}};

const std::map<std::string, double (*)(double, double)> kTwo = {
    {"+", [](double a, double b) { return a + b; }},
    {"-", [](double a, double b) { return a - b; }},
    {"*", [](double a, double b) { return a * b; }},
    {"/", [](double a, double b) { return a / b; }},
    {"<", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
    {"<=", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
    {">", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
    {">=", [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
    {"==", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
    {"!=", [](double a, double b) { return a != b ? 1.0 : 0.0; }},
    {"&&", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
    {"||", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
    {"fmax", [](double a, double b) { return std::fmax(a, b); }},
    {"fmin", [](double a, double b) { return std::fmin(a, b); }},
    {"pow", [](double a, double b) { return std::pow(a, b); }}};

class Reference {
public:
    explicit Reference(const StatementProblem& problem) : problem_(problem) {}

    double value(const Expression& it, const Place& place) const {
        const auto of = [&](std::size_t i) { return value(it.operands.at(i), place); };
        switch (it.kind) {
            case Expression::Kind::number: return it.number;
            case Expression::Kind::read:
                return problem_.operand_at(static_cast<std::size_t>(it.number), place);
            case Expression::Kind::name: return named(it.name, place);
            case Expression::Kind::call: break;
        }
        if (it.name == "?:") return of(0) != 0 ? of(1) : of(2);
        if (it.operands.size() == 1) return kOne.at(it.name)(of(0));
        if (it.name == "fma") return of(0) * of(1) + of(2);
        return kTwo.at(it.name)(of(0), of(1));
    }

    // Of an element of the result, and how far from it one may be.
    struct Expected {
        double value = 0;
        double error = 0;
    };

    Expected at(Place place, double before) const {
        const BoundStatement& it = problem_.it;
        double all = it.initializes ? identity(it.reduction) : before;
        double sizes = std::fabs(it.initializes ? 0 : before);
        std::int64_t count = 0;
        problem_.for_places(true, place, [&] {
            const double next = value(it.value, place);
            sizes += std::fabs(next) + 1;
            ++count;
            all = join(it.reduction, all, next);
        });
        // Every factor of a product is rounded; values are made of numbers near 1.
        const double size = it.reduction == Reduction::sum ? sizes : std::fabs(all) + 1;
        const double steps = it.reduction == Reduction::product ? static_cast<double>(count) : 0;
        const double step = it.result.dtype == DType::bf16 ? 0x1p-8 : 0;
        const double error = size * (4e-6 + 2e-7 * steps);
        if (is_int8(it.result.dtype)) return {in_bytes(it.result.dtype, all), error + 0.5};
        return {all, error + std::fabs(all) * step};
    }

private:
    double named(const std::string& name, const Place& place) const {
        const auto& all = problem_.it.indices;
        const auto found = std::find_if(all.begin(), all.end(),
                                        [&](const IndexRange& i) { return i.name == name; });
        return static_cast<double>(place[static_cast<std::size_t>(found - all.begin())]);
    }

    static double in_bytes(DType dtype, double x) {
        const double lowest = dtype == DType::u8 ? 0 : -128;
        return std::isnan(x) ? lowest : std::clamp(x, lowest, lowest + 255);
    }

    static double identity(Reduction reduction) {
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        if (reduction == Reduction::largest) return -kInfinity;
        if (reduction == Reduction::smallest) return kInfinity;
        return reduction == Reduction::product ? 1 : 0;
    }

    static double join(Reduction reduction, double all, double next) {
        switch (reduction) {
            case Reduction::none: return next;
            case Reduction::sum: return all + next;
            case Reduction::product: return all * next;
            case Reduction::largest:
                return std::isnan(all) || std::isnan(next) ? all + next : std::max(all, next);
            case Reduction::smallest:
                return std::isnan(all) || std::isnan(next) ? all + next : std::min(all, next);
        }
        return all;
    }

    const StatementProblem& problem_;
};

bool agree(double found, const Reference::Expected& expected) {
    if (std::isnan(expected.value)) return std::isnan(found);
    if (std::fabs(expected.value) > 1e38 && !std::isinf(expected.value)) return true;
    if (std::isinf(expected.value)) return found == expected.value;
    return std::fabs(found - expected.value) <= expected.error;
}

}  // namespace

void StatementProblem::allocate(Draw& draw, Fence fence) {
    for (BoundOperand& operand : it.operands) {
        Elements& made = operands.emplace_back(fit(operand), operand.dtype, fence);
        for (std::int64_t i = 0; i < made.count(); ++i) {
            const auto value = static_cast<float>(draw.from(1, 60)) / 16.0F - 2.0F;
            set_element(operand.dtype, made.data(), i, value);
        }
    }
    Elements& made = result.emplace_back(fit(it.result), it.result.dtype, fence);
    for (std::int64_t i = 0; i < made.count(); ++i) {
        set_element(it.result.dtype, made.data(), i, static_cast<float>(draw.from(-8, 8)));
    }
}

double StatementProblem::operand_at(std::size_t which, const Place& place) const {
    const BoundOperand& operand = it.operands[which];
    return element_at(operand.dtype, operands[which].data(), element(operand, place));
}

void StatementProblem::run() const {
    const RowStatement row(it);
    std::vector<const void*> arrays;
    for (const Elements& operand : operands) arrays.push_back(operand.data());
    INFO(row.described());
    row.run(arrays, result[0].data());
}

int StatementProblem::wrong_elements() {
    const BoundOperand& target = it.result;
    Elements& array = result[0];
    std::vector<Reference::Expected> expected;
    for (std::int64_t i = 0; i < array.count(); ++i) {
        expected.push_back({element_at(target.dtype, array.data(), i), 0});
    }
    const Reference reference(*this);
    Place place(it.indices.size());
    for_places(false, place, [&] {
        const auto at = static_cast<std::size_t>(element(target, place));
        expected[at] = reference.at(place, expected[at].value);
    });
    run();
    int wrong = 0;
    for (std::int64_t i = 0; i < array.count(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float found = element_at(target.dtype, array.data(), i);
        if (agree(found, expected[at])) continue;
        CAPTURE(found);
        CAPTURE(expected[at].value);
        CHECK(++wrong == 0);
    }
    return wrong;
}

std::int64_t StatementProblem::fit(BoundOperand& operand) const {
    std::int64_t low = 0, high = 0;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        const std::int64_t last = (it.indices[i].extent - 1) * operand.strides[i];
        if (it.indices[i].extent == 0 && operand.strides[i] != 0) return operand.offset = 0;
        low += std::min<std::int64_t>(last, 0);
        high += std::max<std::int64_t>(last, 0);
    }
    operand.offset = -low;
    return high - low + 1;
}

}  // namespace dlprim::testing
