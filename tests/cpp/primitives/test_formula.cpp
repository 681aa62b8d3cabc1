#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/formula.h"

namespace dlprim {
namespace {

std::string refusal_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "nothing was refused";
}

std::string refusal(const std::string& text, const Constants& constants = {}) {
    return refusal_of([&] { parse_product(text, constants); });
}

std::vector<AffineSum> places_of(const std::string& text, const Constants& constants = {}) {
    return parse_product(text, constants).factors.at(0).places;
}

TEST_CASE("a statement is a value that knows how it was written") {
    const std::string text = "dst(g,n,k,p,q) +=! src?(g,n,c,2*p+r-1,2*q+s-3) * weights(g,k,c,r,s)";
    const ProductFormula statement = parse_product(text);
    CHECK(statement.text == text);
    CHECK(statement.result.tensor == "dst");
    CHECK(statement.result.places.size() == 5);
    CHECK_FALSE(statement.result.may_lie_outside);
    CHECK_FALSE(statement.adds_to_result);
    REQUIRE(statement.factors.size() == 2);
    CHECK(statement.factors[0].tensor == "src");
    CHECK(statement.factors[0].may_lie_outside);
    CHECK(statement.factors[0].places[2] == AffineSum{{{1, "c"}}, 0});
    CHECK(statement.factors[0].places[3] == AffineSum{{{2, "p"}, {1, "r"}}, -1});
    CHECK(statement.factors[0].places[4] == AffineSum{{{2, "q"}, {1, "s"}}, -3});
    CHECK(statement.factors[1].tensor == "weights");
    CHECK_FALSE(statement.factors[1].may_lie_outside);
}

TEST_CASE("places may be missing, negative, numbers or longer names, and factors too") {
    CHECK(parse_product("v() += a()").result.places.empty());
    CHECK(places_of("v() += a()").empty());
    CHECK(parse_product("y(n) += 0").factors.empty());
    CHECK(parse_product("y(n) += 0").adds_to_result);
    CHECK(places_of("y(n) += x(n,kh) * w(kh)")[1] == AffineSum{{{1, "kh"}}, 0});
    CHECK(places_of("y(i) += x(-i+7) * w(0,-2*i)") == std::vector{AffineSum{{{-1, "i"}}, 7}});
    CHECK(parse_product("y(i) += x(-i+7) * w(0,-2*i)").factors[1].places ==
          std::vector{AffineSum{}, AffineSum{{{-2, "i"}}, 0}});
}

TEST_CASE("sums are brought together, and constants are put in") {
    const Constants constants{{"u", 3}, {"pad", 2}};
    CHECK(places_of("y( p ) += x(u*p + 2*r*u - pad, p-p, 2*3, i+1+i)", constants) ==
          std::vector{AffineSum{{{3, "p"}, {6, "r"}}, -2}, AffineSum{}, AffineSum{{}, 6},
                      AffineSum{{{2, "i"}}, 1}});
}

TEST_CASE("what is no product of sums of indices is quoted with its position") {
    CHECK(refusal("y(n) = x(n)") ==
          "The formula is no sum with '+=' or '+=!' alone (line 1, column 1).\n"
          "    y(n) = x(n)\n"
          "    ^");
    CHECK(refusal("y(n) += x(n) where n in 0:2") ==
          "The formula is no sum with '+=' or '+=!' alone (line 1, column 1).\n"
          "    y(n) += x(n) where n in 0:2\n"
          "    ^");
    CHECK(refusal("y(n) += ") ==
          "The formula has nothing more, expected a name, a number or '(' (line 1, column 9).\n"
          "    y(n) += \n"
          "            ^");
    CHECK(refusal("y(n) += x(n) * w(n) * b(n)") ==
          "The factor is no read of a tensor (line 1, column 9).\n"
          "    y(n) += x(n) * w(n) * b(n)\n"
          "            ^");
    const auto place = [](const std::string& text, const std::string& column,
                          const Constants& constants = {}) {
        return refusal(text, constants)
                   .find(
                       "The place is no sum of indices times numbers of at most 2^31 (line 1, "
                       "column " +
                       column + ").") == 0;
    };
    CHECK(place("y(n) += x(n*k)", "11"));
    CHECK(place("y(n) += x(n, w(n))", "14"));
    CHECK(place("y(n/2) += x(n)", "3"));
    CHECK(place("y(n) += x(65536*65536*n)", "11"));
    CHECK(place("y(n) += x(u*n)", "11", {{"u", std::int64_t{1} << 40}}));
    CHECK(refusal("y(n) += x(9999999999*n)") ==
          "The formula has '9999999999', expected a number of at most 2^31 (line 1, column 11).\n"
          "    y(n) += x(9999999999*n)\n"
          "              ^");
    CHECK(refusal("y(n) += x(u*u*n)", {{"u", std::int64_t{1} << 40}}) ==
          "A number of the formula does not fit 64 bits, expected less.");
}

TEST_CASE("layouts have to fit the statement") {
    const auto vector = [](char letter, std::int64_t extent) {
        return plain_layout(DType::f32, {{letter, extent}});
    };
    const auto refused = [&](const std::string& text, std::int64_t inputs) {
        return refusal_of([&] {
            contraction_from(parse_product(text),
                             {vector('k', 5), vector('x', inputs),
                              plain_layout(DType::f32, {{'r', 3}, {'k', 5}})},
                             {.loops = "k", .rows = "k", .columns = "k", .depth = "r"});
        });
    };
    CHECK(refused("y(k) += x(k+r) * w(r,k)", 7) == "nothing was refused");
    CHECK(refused("y(k) += x(k+r) * w(r,k)", 6) ==
          "The formula \"y(k) += x(k+r) * w(r,k)\" has places 0 to 6 in a dimension of 6 of x, "
          "expected \"?\" behind its name.");
    CHECK(refused("y(k) += x?(k+r-1) * w(r,k)", 6) == "nothing was refused");
    CHECK(refused("y(k) += x(k,r) * w(r,k)", 7) ==
          "The places of x are 2, expected one for each of 1 dimensions.");
    CHECK(refused("y(k) += x(k+i) * w(r,k)", 7) ==
          "The formula \"y(k) += x(k+i) * w(r,k)\" has no place for the index i alone, expected "
          "one.");
}

}  // namespace
}  // namespace dlprim
