#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "lang/gradients.h"

namespace dlprim {
namespace {

std::string written(const std::string& text, const std::string& parameter) {
    return gradient_of(definition_of(text), parameter).text;
}

constexpr const char* kLayer =
    "def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {\n"
    "    y(n,o) +=! x(n,i) * w(o,i)\n"
    "    y(n,o) = fmax(y(n,o) + b(o), 0)\n"
    "}\n";

TEST_CASE("gradients are written as a person would") {
    CHECK(written(kLayer, "w") ==
          "def fcrelu_d_w(float(B,I) x, float(O,I) w, float(O) b, float(B,O) d_y) -> (d_w) {\n"
          "    y_1(n,o) +=! x(n,i) * w(o,i)\n"
          "    d_y_1(n,o) = (y_1(n,o) + b(o) > 0) ? d_y(n,o) : 0\n"
          "    d_w(o,i) +=! d_y_1(n,o) * x(n,i)\n"
          "}\n");
    CHECK(written("y(n,k) +=! x(n,c) * w(k,c)", "x") ==
          "def d_x(float(size_n,size_c) x, float(size_k,size_c) w, "
          "float(size_n,size_k) d_y) -> (d_x) {\n"
          "    d_x(n,c) +=! d_y(n,k) * w(k,c)\n"
          "}\n");
    const std::string convolution =
        "def conv(float(N,C,H) x, float(M,C,R) w) -> (y) { y(n,m,p) +=! x(n,c,p+r) * w(m,c,r) }";
    CHECK(written(convolution, "x") ==
          "def conv_d_x(float(N,C,H) x, float(M,C,R) w, float(N,M,H - R + 1) d_y) -> (d_x) {\n"
          "    d_x(n,c,at) +=! d_y?(n,m,at - r) * w(m,c,r) where at in 0:H\n"
          "}\n");
    CHECK(written(convolution, "w") ==
          "def conv_d_w(float(N,C,H) x, float(M,C,R) w, float(N,M,H - R + 1) d_y) -> (d_w) {\n"
          "    d_w(m,c,r) +=! d_y(n,m,p) * x(n,c,p + r)\n"
          "}\n");
}

TEST_CASE("steps gather elements by their remainders") {
    const std::string text =
        "def conv(float(C,H) x, float(M,C,3) w) -> (y) {\n"
        "    y(m,p) +=! x?(c,2*p+r-1) * w(m,c,r) where p in 0:(H+1)/2 }";
    const std::string by_x = written(text, "x");
    CHECK(by_x ==
          "def conv_d_x(float(C,H) x, float(M,C,3) w, float(M,(H + 1) / 2) d_y) -> (d_x) {\n"
          "    split_x(c,2 * p_1 + rest) +=! d_y?(m,p_1 - r_1) * w?(m,c,2 * r_1 + rest) "
          "where p_1 in 0:H / 2 + 1, rest in 0:2, r_1 in 0:2\n"
          "    d_x(c,at) = split_x(c,at + 1) where at in 0:H\n"
          "}\n");
    // A gradient is a definition, which has gradients.
    std::mt19937 random(2);
    const Arrays arrays = {{"x", random_array({2, 7}, random)},
                           {"w", random_array({3, 2, 3}, random)},
                           {"d_y", random_array({3, 4}, random)}};
    for (const char* const name : {"x", "w", "d_y"}) check_gradient(by_x, arrays, name);
    check_gradient(written("y(n) = exp(x(n)) * x(n)", "x"),
                   {{"x", random_array({4}, random)}, {"d_y", random_array({4}, random)}}, "x");
}

TEST_CASE("gradients of products of matrices") {
    check_gradients(kLayer, {{"x", {3, 4}}, {"w", {5, 4}}, {"b", {5}}});
    check_gradients("y(n,k) +=! x(n,c) * w(k,c)", {{"x", {3, 4}}, {"w", {2, 4}}});
    check_gradients("y(n,k) +=! x(n,c) * w(k,c) where c in 0:2", {{"x", {3, 4}}, {"w", {2, 3}}});
    check_gradients("y(n) +=! x(n,c) * x(n,c)", {{"x", {3, 4}}});
    check_gradients("y +=! x(n,c) * a() where n in 0:2", {{"x", {3, 4}}, {"a", {}}});
    check_gradients(
        "def sgemm(float a, float b, float(N,M) A, float(M,K) B) -> (C) {\n"
        "    C(i,j) = b * C(i,j)\n"
        "    C(i,j) += a * A(i,k) * B(k,j) }",
        {{"a", {}}, {"b", {}}, {"A", {3, 4}}, {"B", {4, 2}}, {"C", {3, 2}}});
    check_gradients(
        "def kronecker(float(D0,N0) W0, float(D1,N1) W1, float(D2,N2) W2, float(M,N0,N1,N2) X)\n"
        "    -> (Y) {\n"
        "    XW2(m,n0,n1,d2) +=! X(m,n0,n1,n2) * W2(d2,n2)\n"
        "    XW1(m,n0,d1,d2) +=! XW2(m,n0,n1,d2) * W1(d1,n1)\n"
        "    Y(m,d0,d1,d2) +=! XW1(m,n0,d1,d2) * W0(d0,n0) }",
        {{"W0", {2, 3}}, {"W1", {3, 2}}, {"W2", {2, 4}}, {"X", {2, 3, 2, 4}}});
    check_gradients("y(m,z) +=! a(m,i,j) * b(i,k) * c(j,k,z)",
                    {{"a", {2, 3, 4}}, {"b", {3, 2}}, {"c", {4, 2, 3}}});
    check_gradients(
        "def two(float(B,M) I, float(N,M) W1, float(N) B1, float(P,N) W2, float(P) B2)\n"
        "    -> (O1, O2) {\n"
        "    O1(b,n) +=! I(b,m) * W1(n,m)\n"
        "    O1(b,n) = fmax(O1(b,n) + B1(n), 0)\n"
        "    O2(b,p) = B2(p) where b in 0:B\n"
        "    O2(b,p) += O1(b,n) * W2(p,n)\n"
        "    O2(b,p) = relu(O2(b,p)) }",
        {{"I", {3, 4}}, {"W1", {5, 4}}, {"B1", {5}}, {"W2", {2, 5}}, {"B2", {2}}});
}

TEST_CASE("gradients of convolutions") {
    check_gradients(
        "def f(float(N,C,H,W) I, float(M,C,KH,KW) K, float(M) B) -> (O) {\n"
        "    O(n,m,h,w) +=! I(n,c,2*h+kh,w+kw) * K(m,c,kh,kw)\n"
        "    O(n,m,h,w) = O(n,m,h,w) + B(m) }",
        {{"I", {2, 2, 8, 5}}, {"K", {3, 2, 3, 2}}, {"B", {3}}});
    check_gradients("O(n,g,m,h) +=! I?(n,g,c,h+kh-1) * K(g,m,c,kh)",
                    {{"I", {2, 2, 3, 6}}, {"K", {2, 4, 3, 3}}}, {{"h", 6}});
    check_gradients("O(m,p,q) +=! I?(c,2*p+r-1,3*q+2*s-2) * K(m,c,r,s)",
                    {{"I", {2, 7, 9}}, {"K", {2, 2, 3, 3}}}, {{"p", 4}, {"q", 3}});
    check_gradients("B(x) +=! A(xp) * K(5-1+x-xp) where xp in 0:5", {{"A", {5}}, {"K", {9}}});
    check_gradients("y(p) +=! exp(x(p+r)) * w(r)", {{"x", {7}}, {"w", {3}}});
    check_gradients("y(p) +=! exp(x(p+r) * w(r))", {{"x", {7}}, {"w", {3}}});
    check_gradients("y(p) +=! x?(p-r) * w(r) where p in 0:5", {{"x", {7}}, {"w", {3}}});
    check_gradients("y(p) = x(3*p+1) where p in 0:2", {{"x", {7}}});
    check_gradients("y(p) = x(6-2*p) where p in 0:3", {{"x", {8}}});
    check_gradients("y(p) +=! log(x(3*p+r) * x(3*p+r) + 1) where r in 0:5, p in 0:3",
                    {{"x", {13}}});
    check_gradients("y(p,q) +=! x(2*p+4*q+r) * w(r) where p in 0:2, q in 0:3",
                    {{"x", {17}}, {"w", {4}}});
    check_gradients("y(2*a+b) = x(a,b) * w(2*a+b) where b in 0:2", {{"x", {3, 2}}, {"w", {6}}});
    check_gradients("y(i,j) = x(i+j, i) * x(j, 2) where i in 0:3, j in 0:2", {{"x", {5, 4}}});
    check_gradients("y(i) = x(i,i) + x(i,0) + x(3,i)", {{"x", {4, 4}}});
}

TEST_CASE("gradients of what is normalised") {
    check_gradients(
        "def norm(float(N,K) I, float(K) gamma, float(K) beta) -> (O, mean, var) {\n"
        "    mean(n) +=! I(n,k)\n"
        "    var(n) +=! I(n,k) * I(n,k)\n"
        "    mean(n) = mean(n) / (K)\n"
        "    var(n) = var(n) / (K) - mean(n) * mean(n)\n"
        "    O(n,k) = gamma(k) * (I(n,k) - mean(n)) * rsqrt(var(n) + 1e-2) + beta(k) }",
        {{"I", {3, 6}}, {"gamma", {6}}, {"beta", {6}}});
    check_gradients(
        "def group(float(N,G,D,H,W) I, float(G,D) gamma, float(G,D) beta) -> (O, mean, var) {\n"
        "    mean(n,g) +=! I(n,g,d,h,w)\n"
        "    var(n,g) +=! I(n,g,d,h,w) * I(n,g,d,h,w)\n"
        "    O(n,g,d,h,w) = gamma(g,d) * (I(n,g,d,h,w) - mean(n,g) / (D*H*W))\n"
        "        * rsqrt(var(n,g) / (D*H*W) - mean(n,g)*mean(n,g) / (D*H*W*D*H*W) + 1e-2)\n"
        "        + beta(g,d) }",
        {{"I", {2, 2, 2, 2, 2}}, {"gamma", {2, 2}}, {"beta", {2, 2}}});
    check_gradients(
        "def batch(float momentum, float eps, float(N,C,H) I, float(C) rMeanIn, float(C) rVarIn)\n"
        "    -> (O, rMeanOut, rVarOut, mean, centered, var, expected, normalised) {\n"
        "    mean(c) +=! I(nn,c,hh)\n"
        "    mean(c) = mean(c) / (N*H)\n"
        "    rMeanOut(c) = (1 - momentum) * rMeanIn(c) + momentum * mean(c)\n"
        "    centered(n,c,h) = I(n,c,h) - rMeanOut(c)\n"
        "    var(n,c,h) = centered(n,c,h) * centered(n,c,h)\n"
        "    expected(c) +=! (var(n,c,h) + eps) / (N*H)\n"
        "    rVarOut(c) = rsqrt(4 + (1 - momentum) * rVarIn(c) + momentum * expected(c))\n"
        "    O(n,c,h) = centered(n,c,h) * rVarOut(c)\n"
        "    normalised(n,c,h) = O(n,c,h) }",
        {{"momentum", {}}, {"eps", {}}, {"I", {2, 2, 3}}, {"rMeanIn", {2}}, {"rVarIn", {2}}});
}

TEST_CASE("gradients of maxima and products go to what they were made of") {
    check_gradients(
        "def f(float(N,D) I, float(B,H,W) X, float(K) S) -> (O, largest, mean, v, place) {\n"
        "    top(n) max=! I(n,d)\n"
        "    e(n,d) = exp(I(n,d) - top(n))\n"
        "    s(n) +=! e(n,d)\n"
        "    O(n,d) = e(n,d) / s(n)\n"
        "    largest(b,h,w) max=! X(b,2*h+kh,2*w+kw) where kh in 0:2, kw in 0:2\n"
        "    mean(b,h,w) +=! X(b,2*h+kh,2*w+kw) / (2*2) where kh in 0:2, kw in 0:2\n"
        "    v min=! S(k)\n"
        "    place min=! (S(k) == v) ? k : K }",
        {{"I", {3, 5}}, {"X", {2, 5, 4}}, {"S", {7}}});
    check_gradients(
        "def f(float(N,K) x, float(K) w) -> (p, q, r, s) {\n"
        "    p(n) *=! x(n,k) * w(k)\n"
        "    q(n) max= x(n,k) * w(k)\n"
        "    r(n) min=! x(n,k) - w(k)\n"
        "    s(n) *= x(n,k) }",
        {{"x", {2, 3}}, {"w", {3}}, {"q", {2}}, {"s", {2}}});
    check_gradients("y(n) *=! x(n,j,k) + 1", {{"x", {2, 2, 3}}});
    // Of zeros, and of equal ones.
    check_gradient("y(n) *=! x(n,k)", {{"x", {{2, 3}, {0, 2, 3, 0, 4, 0}}}}, "x");
    const Arrays even =
        run(written("y(n) max=! x(n,k)", "x"), {{"x", {{1, 3}, {2, 1, 2}}}, {"d_y", {{1}, {3}}}});
    CHECK(even.at("d_x").values == std::vector<double>{1.5, 0, 1.5});
    const Arrays relu = run(written("y(n) = fmax(0, x(n)) + fmax(x(n), z(n))", "x"),
                            {{"x", {{2}, {0, 1}}}, {"z", {{2}, {0, 0}}}, {"d_y", {{2}, {1, 1}}}});
    CHECK(relu.at("d_x").values == std::vector<double>{1, 2});
}

TEST_CASE("gradients of branches read what the branches read") {
    const std::string text =
        "def wave(float(B,C,R) Data, float(D) dilation, float(A,C) W, int32(M,N) Mask,\n"
        "         float(M,N) X, float(M,N) Z) -> (O, masked, both, triangle) {\n"
        "    O(b,a,t) +=! Data(b,c,t) * W(a,c)\n"
        "                 + (t - D >= 0 ? Data(b,c,t-D) * W(a,c) : float(0))\n"
        "    masked(m,n) = (Mask(m,n) == 1) ? fmax(0, X(m,n)) : 0\n"
        "    both(n,i,m) = i == 0 ? X(m,n) : Z(m,n) where i in 0:2\n"
        "    triangle(i,j) = (i >= j || X(i,j-1) < 0) ? 0 : X(i,j) where i in 0:M, j in 0:N }";
    std::mt19937 random(3);
    const Arrays arrays = {
        {"Data", random_array({2, 3, 6}, random)}, {"dilation", random_array({2}, random)},
        {"W", random_array({2, 3}, random)},       {"Mask", array_of({3, 4}, 2)},
        {"X", random_array({3, 4}, random)},       {"Z", random_array({3, 4}, random)}};
    for (const char* const name : {"Data", "dilation", "W", "X", "Z"}) {
        check_gradient(text, arrays, name);
    }
    // Places that are read from a tensor: all are compared.
    check_gradient("def f(float(E,D) LUT, int32(B,L) I) -> (y) { y(i,j) +=! LUT(I(i,k),j) }",
                   {{"LUT", random_array({6, 3}, random)}, {"I", array_of({4, 5}, 6)}}, "LUT");
}

TEST_CASE("what has no gradient") {
    const auto refusal = [](const std::string& text, const std::string& parameter) {
        return refusal_of([&] { gradient_of(definition_of(text), parameter); });
    };
    CHECK(refusal(kLayer, "z") == "The definition has no parameter z, expected one of x, w, b.");
    CHECK(refusal("def f(int32(N) i, float(N) x) -> (y) { y(n) = i(n) * x(n) }", "i") ==
          "The parameter i has whole numbers, expected a real one for a gradient.");
    std::string power = "y(n) = x(n)";
    for (int i = 0; i < 600; ++i) power += " * x(n)";
    CHECK(refusal(power, "x").find("The gradient would have more than 65536 names") == 0);
    CHECK(refusal("y(n) = lgamma(x(n))", "x") ==
          "The function lgamma has no derivative among the functions of formulas, expected another "
          "one (line 1, column 8).");
}

}  // namespace
}  // namespace dlprim
