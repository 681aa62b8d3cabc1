#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "lang/formulas.h"

namespace dlprim {
namespace {

TEST_CASE("tables that are looked up") {
    const Arrays it =
        run("def f(float(E,D) LUT, int32(B,L) I, float(B,E) X, int64(N) J) -> (sums, gathered) {\n"
            "    sums(i,j) +=! LUT(I(i,k),j)\n"
            "    gathered(b,n) = X(b,J(n)) }",
            {{"LUT", array_of({6, 3})},
             {"I", array_of({4, 5}, 6)},
             {"X", array_of({4, 6})},
             {"J", array_of({3}, 6)}});
    check_array(it.at("sums"), {4, 3}, [&](const Shape& p) {
        return sum(5, [&](auto k) {
            return at(it.at("LUT"), {static_cast<std::int64_t>(at(it.at("I"), {p[0], k})), p[1]});
        });
    });
    check_array(it.at("gathered"), {4, 3}, [&](const Shape& p) {
        return at(it.at("X"), {p[0], static_cast<std::int64_t>(at(it.at("J"), {p[1]}))});
    });
    CHECK(refusal_of([] {
              run("def f(float(N) x, int32(K) I) -> (y) { y(k) = x(I(k)) }",
                  {{"x", array_of({2})}, {"I", array_of({3}, 9)}});
          }) ==
          "The place 3 of x is not in its dimension of 2, expected one that is, or '?' "
          "for zeros outside (line 1, column 49).");
    CHECK(refusal_of([] {
              run("def f(float(N) x, int32(K) I) -> (y) { y(k) = x(I(k)) }",
                  {{"x", array_of({2})}, {"I", Array{{1}, {std::nan("")}}}});
          }).find("of x is not in its dimension") != std::string::npos);
}

TEST_CASE("only what is chosen is read") {
    const Arrays it =
        run("def wave(float(B,C,R) Data, float(D) dilation, float(A,C) W, int32(M,N) Mask,\n"
            "         float(M,N) X, float(M,N) Z) -> (O, masked, both, triangle) {\n"
            "    O(b,a,t) +=! Data(b,c,t) * W(a,c)\n"
            "                 + (t - D >= 0 ? Data(b,c,t-D) * W(a,c) : float(0))\n"
            "    masked(m,n) = (Mask(m,n) == 1) ? fmax(0, X(m,n)) : 0\n"
            "    both(n,i,m) = i == 0 ? X(m,n) : Z(m,n) where i in 0:2\n"
            "    triangle(i,j) = (i >= j || X(i,j-1) < 0) ? 0 : X(i,j) where i in 0:M, j in 0:N }",
            {{"Data", array_of({2, 3, 6})},
             {"dilation", array_of({2})},
             {"W", array_of({2, 3})},
             {"Mask", array_of({3, 4}, 2)},
             {"X", array_of({3, 4})},
             {"Z", array_of({3, 4})}});
    const Array &X = it.at("X"), &Z = it.at("Z");
    check_array(it.at("O"), {2, 2, 6}, [&](const Shape& p) {
        return sum(3, [&](auto c) {
            return at(it.at("W"), {p[1], c}) *
                   (at(it.at("Data"), {p[0], c, p[2]}) + at(it.at("Data"), {p[0], c, p[2] - 2}));
        });
    });
    check_array(it.at("masked"), {3, 4}, [&](const Shape& p) {
        return at(it.at("Mask"), p) == 1 ? std::max(0.0, at(X, p)) : 0;
    });
    check_array(it.at("both"), {4, 2, 3},
                [&](const Shape& p) { return at(p[1] == 0 ? X : Z, {p[2], p[0]}); });
    check_array(it.at("triangle"), {3, 4}, [&](const Shape& p) {
        return p[0] >= p[1] || at(X, {p[0], p[1] - 1}) < 0 ? 0 : at(X, p);
    });
}

TEST_CASE("reductions begin as they should, or with what is there") {
    const Arrays it =
        run("def f(float(N,K) x) -> (p, q, r, s) {\n"
            "    p(n) *=! x(n,k)\n"
            "    q(n) max= x(n,k)\n"
            "    r(n) min=! x(n,k)\n"
            "    s(n) *= x(n,k) }",
            {{"x", array_of({2, 3})}, {"q", {{2}, {100, -100}}}, {"s", {{2}, {2, 0}}}});
    const auto& x = it.at("x").values;
    CHECK(it.at("p").values == std::vector<double>{x[0] * x[1] * x[2], x[3] * x[4] * x[5]});
    CHECK(it.at("q").values == std::vector<double>{100, std::max({x[3], x[4], x[5]})});
    CHECK(it.at("r").values ==
          std::vector<double>{std::min({x[0], x[1], x[2]}), std::min({x[3], x[4], x[5]})});
    CHECK(it.at("s").values == std::vector<double>{2 * x[0] * x[1] * x[2], 0});
    const Arrays none = run("y(n) max=! x(n,k)", {{"x", array_of({2, 0})}});
    CHECK(none.at("y").values == std::vector<double>(2, -std::numeric_limits<double>::infinity()));
    CHECK(run("y(n) +=! x(n,k)", {{"x", array_of({0, 3})}}).at("y").values.empty());
    CHECK(refusal_of([] {
              run("y(n) += x(n)", {{"x", array_of({2})}});
          }).find("expected an array") != std::string::npos);
}

TEST_CASE("digits go over a dimension of the result") {
    const Array x = array_of({3, 2, 4});
    const Arrays it = run("y(8*i+k+4*j) = x(i,j,k) where j in 0:2, k in 0:4", {{"x", x}});
    CHECK(it.at("y").shape == Shape{24});
    CHECK(it.at("y").values == x.values);
    const Arrays sums =
        run("y(i,2*k+j) +=! x(i,j,k) * w(k,l) where j in 0:2", {{"x", x}, {"w", array_of({4, 3})}});
    check_array(sums.at("y"), {3, 8}, [&](const Shape& p) {
        return sum(3, [&](auto l) {
            return at(x, {p[0], p[1] % 2, p[1] / 2}) * at(sums.at("w"), {p[1] / 2, l});
        });
    });
    const char* const not_once =
        "The places of the result y leave some out or meet some twice, expected digits such as "
        "2*a+b 'where b in 0:2' (line 1, column 3).";
    for (const char* const text : {"y(2*i+j) = x(i,j,0) where j in 0:1", "y(i+j) = x(i,j,0)"}) {
        CHECK(refusal_of([&] { run(text, {{"x", x}}); }) == not_once);
    }
    CHECK(refusal_of([&] { run("y(2*i+1) = x(i,0,0)", {{"x", x}}); }) ==
          "A place of the result y is no index of its own, expected another name at every place "
          "(line 1, column 3).");
}

TEST_CASE("integers divide as floor does, real numbers do not") {
    const auto value = [](const std::string& text) {
        return run("def f(int32(N) I, float s) -> (v) { v = " + text + " }",
                   {{"I", {{2}, {-7, 3}}}, {"s", {{}, {0.5}}}})
            .at("v")
            .values.at(0);
    };
    CHECK(value("I(0) / 2") == -4);
    CHECK(value("I(0) % 4") == 1);
    CHECK(value("I(0) / 2.0") == -3.5);
    CHECK(value("float(I(0)) / 2") == -3.5);
    CHECK(value("int(I(0) * 0.5)") == -3);
    CHECK(value("-I(1) - 2 * -N") == 1);
    CHECK(value("min(I(0), 2) + max(s, 0)") == -6.5);
    CHECK(value("(s > 0.25 && !(I(1) != 3)) ? 1 : 2") == 1);
    CHECK(value("(s <= 0.25 || I(1) >= 4) ? 1 : 2") == 2);
    CHECK(value("gelu(0.0) + sigmoid(0) + erf(0) + tanh(0) + log1p(expm1(s)) + fma(s, 2, 1)") ==
          doctest::Approx(3));
    CHECK(value("pow(2, 3) + sqrt(16) + fabs(-1) + fmin(s, 0) + floor(s) + ceil(s)") == 14);
}

}  // namespace
}  // namespace dlprim
