// Random statements against plain loops in double precision, and those by hand whose way is known.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "draw.h"
#include "jit/element_reference.h"
#include "primitives/statements/row_statement.h"
#include "primitives/tensor/parallel.h"
#include "statement_problem.h"

namespace dlprim {
namespace {

using testing::call;
using testing::Draw;
using testing::Elements;
using testing::Fence;
using testing::index;
using testing::number;
using testing::read;
using testing::StatementProblem;
using testing::whole;

// An operand whose elements are in a random order of the indices, some of which it does not have.
BoundOperand drawn_operand(Draw& draw, const std::vector<IndexRange>& indices, bool is_result) {
    constexpr std::array types = {DType::f32, DType::f32, DType::bf16, DType::s8, DType::u8};
    BoundOperand made{.dtype = draw.one_of(types),
                      .strides = std::vector<std::int64_t>(indices.size())};
    std::vector<std::size_t> order(indices.size());
    std::iota(order.begin(), order.end(), 0);
    if (draw.once_in(2)) {
        for (std::size_t i = order.size(); i-- > 1;) {
            std::swap(order[i],
                      order[static_cast<std::size_t>(draw.from(0, static_cast<std::int64_t>(i)))]);
        }
    }
    std::int64_t stride = draw.once_in(6) ? draw.from(2, 3) : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
        const IndexRange& it = indices[order[i]];
        if (is_result ? it.reduced : draw.once_in(4)) continue;
        made.strides[order[i]] = draw.once_in(8) ? -stride : stride;
        stride *= std::max<std::int64_t>(it.extent, 1);
        if (draw.once_in(6)) stride += draw.from(1, 3);
        // A diagonal, or a window.
        if (!is_result && draw.once_in(8)) stride = draw.from(1, 3);
    }
    return made;
}

Expression drawn_value(Draw& draw, const BoundStatement& it, int depth) {
    constexpr std::array<const char*, 9> one = {"-",    "fabs",  "exp",  "tanh", "sigmoid",
                                                "relu", "float", "gelu", "!"};
    constexpr std::array<const char*, 5> two = {"+", "-", "*", "fmax", "fmin"};
    constexpr std::array<const char*, 8> conditions = {
        "<", "<=", ">", ">=", "==", "!=", "&&", "||"};
    const auto operands = static_cast<std::int64_t>(it.operands.size());
    const auto next = [&] { return drawn_value(draw, it, depth - 1); };
    if (depth == 0 || draw.once_in(3)) {
        if (!it.indices.empty() && draw.once_in(8)) {
            const auto last = static_cast<std::int64_t>(it.indices.size()) - 1;
            return index(it.indices[static_cast<std::size_t>(draw.from(0, last))].name);
        }
        if (operands == 0 || draw.once_in(8)) return number(static_cast<double>(draw.from(-3, 3)));
        return read(draw.from(0, operands - 1));
    }
    if (draw.once_in(4)) {
        // Bounded, so that exp and products stay in range.
        return call(draw.one_of(one), {call("fmin", {next(), number(4)})});
    }
    if (draw.once_in(5)) {
        return call("?:", {call(draw.one_of(conditions), {next(), next()}), next(), next()});
    }
    return call(draw.one_of(two), {next(), next()});
}

BoundStatement drawn_statement(Draw& draw) {
    constexpr std::array reductions = {Reduction::sum, Reduction::sum, Reduction::product,
                                       Reduction::largest, Reduction::smallest};
    BoundStatement it;
    it.reduction = draw.once_in(4) ? Reduction::none : draw.one_of(reductions);
    const std::int64_t count = draw.from(0, 4);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t most = count > 2 ? 12 : 80;
        const std::int64_t extent = draw.once_in(40) ? 0 : draw.from(1, most);
        const bool reduced = it.reduction != Reduction::none && draw.once_in(2);
        it.indices.push_back({std::string(1, static_cast<char>('i' + i)), extent, reduced});
    }
    it.initializes = it.reduction == Reduction::none || !draw.once_in(4);
    it.result = drawn_operand(draw, it.indices, true);
    const std::int64_t operands = draw.from(0, 3);
    for (std::int64_t i = 0; i < operands; ++i) {
        it.operands.push_back(drawn_operand(draw, it.indices, false));
    }
    it.value = drawn_value(draw, it, 2);
    if (it.reduction == Reduction::product) {
        // Factors near 1, that many of them stay in range.
        it.value = call("+", {number(1), call("*", {number(0x1p-9), it.value})});
    }
    return it;
}

// Of arrays in the order of the letters that each has: "ij,j->i". Capitals are sizes beyond.
BoundStatement einsum(const std::string& formula, const std::map<char, std::int64_t>& extents,
                      Reduction reduction, Expression value) {
    BoundStatement it{.reduction = reduction, .value = std::move(value)};
    const std::size_t arrow = formula.find("->");
    const std::string result = formula.substr(arrow + 2);
    for (const auto& [letter, extent] : extents) {
        it.indices.push_back(
            {std::string(1, letter), extent, result.find(letter) == std::string::npos});
    }
    const auto operand = [&](const std::string& letters) {
        BoundOperand made{.strides = std::vector<std::int64_t>(it.indices.size())};
        std::int64_t stride = 1;
        for (std::size_t i = letters.size(); i-- > 0;) {
            for (std::size_t k = 0; k < it.indices.size(); ++k) {
                if (it.indices[k].name[0] == letters[i]) made.strides[k] += stride;
            }
            stride *= extents.at(letters[i]);
        }
        return made;
    };
    it.result = operand(result);
    std::string rest = formula.substr(0, arrow);
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        it.operands.push_back(operand(rest.substr(0, comma)));
        rest.erase(0, comma + 1);
    }
    return it;
}

// Right, and the same bits with one thread and with two.
void check(const BoundStatement& statement, std::uint64_t seed = 1) {
    std::vector<Elements> results;
    for (const int threads : {1, 2}) {
        Draw draw(seed);
        StatementProblem problem(statement);
        problem.allocate(draw, seed % 2 == 0 ? Fence::before : Fence::after);
        set_num_threads(threads);
        const int wrong = problem.wrong_elements();
        set_num_threads(1);
        INFO(RowStatement(problem.it).described());
        REQUIRE(wrong == 0);
        results.push_back(std::move(problem.result[0]));
    }
    CHECK(testing::differences(results[0], results[1]) == 0);
}

TEST_CASE("random statements are what plain loops make of them") {
    for (std::uint64_t seed = 1; seed <= 2500; ++seed) {
        CAPTURE(seed);
        Draw draw(seed);
        const BoundStatement statement = drawn_statement(draw);
        check(statement, seed);
    }
}

TEST_CASE("products that are no products of matrices") {
    const Expression product = call("*", {read(0), read(1)});
    check(einsum("i,j->ij", {{'i', 40}, {'j', 300}}, Reduction::none, product));
    check(einsum("ij,ij->i", {{'i', 40}, {'j', 300}}, Reduction::sum, product));
    check(einsum("bij,bj->bi", {{'b', 5}, {'i', 40}, {'j', 70}}, Reduction::sum, product));
    check(einsum("i,ij->j", {{'i', 3000}, {'j', 70}}, Reduction::sum, product));
    check(einsum("i,i->", {{'i', 100000}}, Reduction::sum, product));
}

TEST_CASE("sums over any indices, also long ones") {
    check(einsum("ijk->ik", {{'i', 10}, {'j', 300}, {'k', 20}}, Reduction::sum, read(0)));
    check(einsum("ijk->j", {{'i', 40}, {'j', 3}, {'k', 2000}}, Reduction::sum, read(0)));
    check(einsum("iij->j", {{'i', 30}, {'j', 200}}, Reduction::sum, read(0)));
    check(einsum("ii->", {{'i', 300}}, Reduction::sum, read(0)));
    check(einsum("ijkl->jl", {{'i', 60}, {'j', 3}, {'k', 70}, {'l', 5}}, Reduction::sum, read(0)));
    check(einsum("ij->j", {{'i', 5003}, {'j', 3}}, Reduction::sum, read(0)));
    check(einsum("ij->j", {{'i', 5003}, {'j', 30}}, Reduction::largest, read(0)));
    check(einsum("ij->i", {{'i', 3}, {'j', 50001}}, Reduction::smallest, read(0)));
    check(einsum("ij->", {{'i', 3}, {'j', 101}}, Reduction::product,
                 call("+", {number(1), call("*", {number(0x1p-9), read(0)})})));
}

TEST_CASE("transposed, with indices as values, by integers") {
    check(einsum("ji->ij", {{'i', 40}, {'j', 300}}, Reduction::none, call("exp", {read(0)})));
    check(einsum("ji->ij", {{'i', 40}, {'j', 300}}, Reduction::none, read(0)));
    const Expression triangle =
        call("?:", {call(">=", {index("i"), index("j")}), read(0), number(-1)});
    check(einsum("ij->ij", {{'i', 40}, {'j', 300}}, Reduction::none, triangle));
    check(einsum("i->i", {{'i', 70}}, Reduction::none,
                 call("+", {read(0), call("*", {index("i"), whole(3)})})));
}

TEST_CASE("functions are those of their names") {
    const Expression positive = call("+", {call("fabs", {read(0)}), number(0.5)});
    for (const std::string name :
         {"-", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "gelu", "rint"}) {
        CAPTURE(name);
        check(einsum("i->i", {{'i', 70}}, Reduction::none, call(name, {positive})));
    }
    for (const double exponent : {0, 1, 2, 3, 7}) {
        const Expression power = call("pow", {read(0), number(exponent)});
        check(einsum("i->i", {{'i', 70}}, Reduction::none, power));
        const Expression inverse = call("pow", {positive, call("-", {number(exponent)})});
        check(einsum("i->i", {{'i', 70}}, Reduction::none, inverse));
    }
    check(einsum("i,j,ij->ij", {{'i', 7}, {'j', 20}}, Reduction::none,
                 call("fma", {read(0), read(1), call("/", {read(2), positive})})));
}

TEST_CASE("long expressions are not written out too often") {
    Expression value = read(0);
    for (int i = 0; i < 6; ++i) {
        value = call("+", {call("gelu", {call("tanh", {value})}), call("exp", {value})});
        value = call("fmin", {value, number(1)});
    }
    for (const std::string formula : {"ij->i", "ij->j", "ji->i", "ij->"}) {
        check(einsum(formula, {{'i', 32}, {'j', 32}}, Reduction::sum, value));
        check(einsum(formula, {{'i', 32}, {'j', 32}}, Reduction::largest, value));
    }
}

TEST_CASE("whole numbers are divided downwards") {
    BoundStatement it = einsum("->i", {{'i', 40}}, Reduction::none, {});
    it.value = call("/", {call("-", {index("i"), whole(20)}), whole(7)});
    it.operands.clear();
    std::vector<float> result(40);
    RowStatement(it).run({}, result.data());
    for (int i = 0; i < 40; ++i) {
        CHECK(result[static_cast<std::size_t>(i)] == std::floor((i - 20) / 7.0));
    }
    it.value = call("%", it.value.operands);
    RowStatement(it).run({}, result.data());
    for (int i = 0; i < 40; ++i) CHECK(result[static_cast<std::size_t>(i)] == (i + 1) % 7);
}

// The longest index is that of the rows, the other one is written out.
TEST_CASE("products that are written out are added in one rounding") {
    const BoundStatement it = einsum("itj,tj->j", {{'i', 3}, {'t', 2}, {'j', 40}}, Reduction::sum,
                                     call("*", {read(0), read(1)}));
    const float near = 1 + 0x1p-12F;
    std::vector<float> x(std::size_t{3} * 2 * 40), weights(std::size_t{2} * 40), result(40);
    std::fill_n(x.begin(), 40, 1.0F);
    std::fill_n(x.begin() + 40, 40, near);
    std::fill_n(weights.begin(), 40, -1.0F);
    std::fill_n(weights.begin() + 40, 40, near);
    const std::array<const void*, 2> operands = {x.data(), weights.data()};
    RowStatement(it).run(operands, result.data());
    for (const float y : result) CHECK(y == 0x1p-11F + 0x1p-24F);
}

TEST_CASE("extremes of what holds NaN are NaN, wherever it is") {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (const std::string formula : {"ij->i", "ij->j", "ij->", "ji->j", "ji->i"}) {
        for (const Reduction reduction : {Reduction::largest, Reduction::smallest}) {
            const BoundStatement it = einsum(formula, {{'i', 21}, {'j', 37}}, reduction, read(0));
            for (const std::int64_t place : {0, 8, 20 * 37, 21 * 37 - 1, 300}) {
                Draw draw(3);
                StatementProblem problem(it);
                problem.allocate(draw, Fence::after);
                set_element(DType::f32, problem.operands[0].data(), place, kNan);
                CHECK(problem.wrong_elements() == 0);
            }
        }
    }
}

TEST_CASE("what cannot run says why") {
    BoundStatement it = einsum("ij->i", {{'i', 4}, {'j', 5}}, Reduction::sum, read(0));
    it.reduction = Reduction::none;
    CHECK_THROWS_WITH(RowStatement{it}, doctest::Contains("expected a reduction"));
    it.reduction = Reduction::sum;
    it.value = call("lgamma", {read(0)});
    CHECK_THROWS_WITH(RowStatement{it}, doctest::Contains("\"lgamma\""));
    it.value = index("z");
    CHECK_THROWS_WITH(RowStatement{it}, doctest::Contains("expected one of its indices"));
    it.value = read(0);
    it.operands[0].dtype = DType::s32;
    CHECK_THROWS_WITH(RowStatement{it}, doctest::Contains("operand 0 is int32"));
    it.operands[0].dtype = DType::f32;
    it.result.strides = {0, 0};
    CHECK_THROWS_WITH(RowStatement{it}, doctest::Contains("no distance along index i"));
}

}  // namespace
}  // namespace dlprim
