#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "lang/formulas.h"

namespace dlprim {
namespace {

TEST_CASE("products of matrices") {
    const Arrays it =
        run("def f(float(M,K) A, float(K,N) B, float(N,K) C, float(K) x) -> (mm, tmm, mv) {\n"
            "    mm(m,n) +=! A(m,k) * B(k,n)\n"
            "    tmm(m,n) +=! A(m,k) * C(n,k)\n"
            "    mv(m) +=! A(m,k) * x(k) }",
            {{"A", array_of({3, 4})},
             {"B", array_of({4, 5})},
             {"C", array_of({5, 4})},
             {"x", array_of({4})}});
    const auto& [A, B, C, x] = std::tie(it.at("A"), it.at("B"), it.at("C"), it.at("x"));
    check_array(it.at("mm"), {3, 5}, [&](const Shape& p) {
        return sum(4, [&](auto k) { return at(A, {p[0], k}) * at(B, {k, p[1]}); });
    });
    check_array(it.at("tmm"), {3, 5}, [&](const Shape& p) {
        return sum(4, [&](auto k) { return at(A, {p[0], k}) * at(C, {p[1], k}); });
    });
    check_array(it.at("mv"), {3}, [&](const Shape& p) {
        return sum(4, [&](auto k) { return at(A, {p[0], k}) * at(x, {k}); });
    });
}

TEST_CASE("batches of products, contractions of tensors, diagonals of blocks") {
    const Arrays it =
        run("def f(float(B,N,M) X, float(B,M,K) Y, float(N,C1,C2,H) I0, float(N,C2,C3,H) I1,\n"
            "      float(B,K,I) Z, float(K,I,J) W) -> (bmm, dot, block) {\n"
            "    bmm(b,n,k) +=! X(b,n,m) * Y(b,m,k)\n"
            "    dot(n,c1,c3,h) +=! I0(n,c1,c2,h) * I1(n,c2,c3,h)\n"
            "    block(b,k,j) +=! Z(b,k,i) * W(k,i,j) }",
            {{"X", array_of({2, 3, 4})},
             {"Y", array_of({2, 4, 5})},
             {"I0", array_of({3, 2, 4, 3})},
             {"I1", array_of({3, 4, 2, 3})},
             {"Z", array_of({2, 5, 3})},
             {"W", array_of({5, 3, 4})}});
    check_array(it.at("bmm"), {2, 3, 5}, [&](const Shape& p) {
        return sum(4, [&](auto m) {
            return at(it.at("X"), {p[0], p[1], m}) * at(it.at("Y"), {p[0], m, p[2]});
        });
    });
    check_array(it.at("dot"), {3, 2, 2, 3}, [&](const Shape& p) {
        return sum(4, [&](auto c) {
            return at(it.at("I0"), {p[0], p[1], c, p[3]}) * at(it.at("I1"), {p[0], c, p[2], p[3]});
        });
    });
    check_array(it.at("block"), {2, 5, 4}, [&](const Shape& p) {
        return sum(3, [&](auto i) {
            return at(it.at("Z"), {p[0], p[1], i}) * at(it.at("W"), {p[1], i, p[2]});
        });
    });
}

TEST_CASE("convolutions, with steps, groups and zeros outside") {
    const std::string conv =
        "def f(float(N,C,H,W) I, float(M,C,KH,KW) K, float(M) B) -> (O) {\n"
        "    O(n,m,h,w) +=! I(n,c,2*h+kh,w+kw) * K(m,c,kh,kw)\n"
        "    O(n,m,h,w) = O(n,m,h,w) + B(m) }";
    const Arrays it = run(
        conv, {{"I", array_of({2, 3, 7, 5})}, {"K", array_of({4, 3, 3, 2})}, {"B", array_of({4})}});
    check_array(it.at("O"), {2, 4, 3, 4}, [&](const Shape& p) {
        return at(it.at("B"), {p[1]}) + sum(18, [&](auto i) {
                   const std::int64_t c = i / 6, r = i / 2 % 3, s = i % 2;
                   return at(it.at("I"), {p[0], c, 2 * p[2] + r, p[3] + s}) *
                          at(it.at("K"), {p[1], c, r, s});
               });
    });
    const Arrays padded =
        run("O(n,g,m,h) +=! I?(n,g,c,h+kh-1) * K(g,m,c,kh)",
            {{"I", array_of({2, 2, 3, 6})}, {"K", array_of({2, 4, 3, 3})}}, {{"h", 6}});
    check_array(padded.at("O"), {2, 2, 4, 6}, [&](const Shape& p) {
        return sum(9, [&](auto i) {
            return at(padded.at("I"), {p[0], p[1], i / 3, p[3] + i % 3 - 1}) *
                   at(padded.at("K"), {p[1], p[2], i / 3, i % 3});
        });
    });
    const Arrays line = run("B(x) +=! A(xp) * K(5-1+x-xp) where xp in 0:5",
                            {{"A", array_of({5})}, {"K", array_of({9})}});
    check_array(line.at("B"), {5}, [&](const Shape& p) {
        return sum(
            5, [&](auto x) { return at(line.at("A"), {x}) * at(line.at("K"), {4 + p[0] - x}); });
    });
}

TEST_CASE("gradients of a convolution") {
    const Arrays it =
        run("def f(float(N,C,H,W) I, float(M,C,KH,KW) K, float(N,M,P,Q) dO) -> (dI, dK) {\n"
            "    dI(n,c,h,w) +=! dO?(n,m,h-kh,w-kw) * K(m,c,kh,kw) where h in 0:H, w in 0:W\n"
            "    dK(m,c,kh,kw) +=! dO(n,m,p,q) * I(n,c,p+kh,q+kw) where kh in 0:KH, kw in 0:KW }",
            {{"I", array_of({2, 3, 5, 4})},
             {"K", array_of({2, 3, 3, 2})},
             {"dO", array_of({2, 2, 3, 3})}});
    check_array(it.at("dI"), {2, 3, 5, 4}, [&](const Shape& p) {
        return sum(12, [&](auto i) {
            const std::int64_t m = i / 6, r = i / 2 % 3, s = i % 2;
            return at(it.at("dO"), {p[0], m, p[2] - r, p[3] - s}) * at(it.at("K"), {m, p[1], r, s});
        });
    });
    check_array(it.at("dK"), {2, 3, 3, 2}, [&](const Shape& p) {
        return sum(18, [&](auto i) {
            const std::int64_t n = i / 9, h = i / 3 % 3, w = i % 3;
            return at(it.at("dO"), {n, p[0], h, w}) * at(it.at("I"), {n, p[1], h + p[2], w + p[3]});
        });
    });
}

TEST_CASE("layers with activations, also several in a definition") {
    const Arrays it =
        run("def two(float(B,M) I, float(N,M) W1, float(N) B1, float(P,N) W2, float(P) B2) -> (O1, "
            "O2) {\n"
            "    O1(b,n) +=! I(b,m) * W1(n,m)\n"
            "    O1(b,n) = fmax(O1(b,n) + B1(n), 0)\n"
            "    O2(b,p) = B2(p) where b in 0:B\n"
            "    O2(b,p) += O1(b,n) * W2(p,n)\n"
            "    O2(b,p) = relu(O2(b,p)) }",
            {{"I", array_of({3, 4})},
             {"W1", array_of({5, 4})},
             {"B1", array_of({5})},
             {"W2", array_of({2, 5})},
             {"B2", array_of({2})}});
    check_array(it.at("O1"), {3, 5}, [&](const Shape& p) {
        return std::max(0.0, at(it.at("B1"), {p[1]}) + sum(4, [&](auto m) {
                                 return at(it.at("I"), {p[0], m}) * at(it.at("W1"), {p[1], m});
                             }));
    });
    check_array(it.at("O2"), {3, 2}, [&](const Shape& p) {
        return std::max(0.0, at(it.at("B2"), {p[1]}) + sum(5, [&](auto n) {
                                 return at(it.at("O1"), {p[0], n}) * at(it.at("W2"), {p[1], n});
                             }));
    });
}

TEST_CASE("moments and what is normalised with them") {
    const Arrays it =
        run("def norm(float(N,K) I, float(K) gamma, float(K) beta) -> (O, mean, var) {\n"
            "    mean(n) +=! I(n,k)\n"
            "    var(n) +=! I(n,k) * I(n,k)\n"
            "    mean(n) = mean(n) / (K)\n"
            "    var(n) = var(n) / (K) - mean(n) * mean(n)\n"
            "    O(n,k) = gamma(k) * (I(n,k) - mean(n)) * rsqrt(var(n) + 1e-5) + beta(k) }",
            {{"I", array_of({3, 6})}, {"gamma", array_of({6})}, {"beta", array_of({6})}});
    const auto mean = [&](std::int64_t n) {
        return sum(6, [&](auto k) { return at(it.at("I"), {n, k}); }) / 6;
    };
    const auto variance = [&](std::int64_t n) {
        return sum(6, [&](auto k) { return std::pow(at(it.at("I"), {n, k}) - mean(n), 2); }) / 6;
    };
    check_array(it.at("var"), {3}, [&](const Shape& p) { return variance(p[0]); });
    check_array(it.at("O"), {3, 6}, [&](const Shape& p) {
        return at(it.at("gamma"), {p[1]}) * (at(it.at("I"), p) - mean(p[0])) /
                   std::sqrt(variance(p[0]) + 1e-5) +
               at(it.at("beta"), {p[1]});
    });
}

TEST_CASE("softmax, pooling and the place of the smallest") {
    const Arrays it =
        run("def f(float(N,D) I, float(B,H,W) X, float(K) S) -> (O, largest, mean, v, place) {\n"
            "    top(n) max=! I(n,d)\n"
            "    e(n,d) = exp(I(n,d) - top(n))\n"
            "    s(n) +=! e(n,d)\n"
            "    O(n,d) = e(n,d) / s(n)\n"
            "    largest(b,h,w) max=! X(b,2*h+kh,2*w+kw) where kh in 0:2, kw in 0:2\n"
            "    mean(b,h,w) +=! X(b,2*h+kh,2*w+kw) / (2*2) where kh in 0:2, kw in 0:2\n"
            "    v min=! S(k)\n"
            "    place min=! (S(k) == v) ? k : K }",
            {{"I", array_of({3, 5})}, {"X", array_of({2, 5, 4})}, {"S", array_of({7})}});
    check_array(it.at("O"), {3, 5}, [&](const Shape& p) {
        return std::exp(at(it.at("I"), p)) /
               sum(5, [&](auto d) { return std::exp(at(it.at("I"), {p[0], d})); });
    });
    const auto in_window = [&](const Shape& p, std::int64_t i) {
        return at(it.at("X"), {p[0], 2 * p[1] + i / 2, 2 * p[2] + i % 2});
    };
    check_array(it.at("largest"), {2, 2, 2}, [&](const Shape& p) {
        return std::max({in_window(p, 0), in_window(p, 1), in_window(p, 2), in_window(p, 3)});
    });
    check_array(it.at("mean"), {2, 2, 2}, [&](const Shape& p) {
        return sum(4, [&](auto i) { return in_window(p, i); }) / 4;
    });
    const auto& values = it.at("S").values;
    const auto smallest = std::min_element(values.begin(), values.end());
    CHECK(it.at("v").values == std::vector<double>{*smallest});
    CHECK(it.at("place").values ==
          std::vector<double>{static_cast<double>(smallest - values.begin())});
}

TEST_CASE("groups and batches are normalised, in one definition") {
    const Arrays it =
        run("def group(float(N,G,D,H,W) I, float(G,D) gamma, float(G,D) beta) -> (O, mean, var) {\n"
            "    mean(n,g) +=! I(n,g,d,h,w)\n"
            "    var(n,g) +=! I(n,g,d,h,w) * I(n,g,d,h,w)\n"
            "    O(n,g,d,h,w) = gamma(g,d) * (I(n,g,d,h,w) - mean(n,g) / (D*H*W))\n"
            "        * rsqrt(var(n,g) / (D*H*W) - mean(n,g)*mean(n,g) / (D*H*W*D*H*W) + 1e-5)\n"
            "        + beta(g,d) }",
            {{"I", array_of({2, 3, 2, 3, 2})},
             {"gamma", array_of({3, 2})},
             {"beta", array_of({3, 2})}});
    const auto in_group = [&](const Shape& p, std::int64_t i) {
        return at(it.at("I"), {p[0], p[1], i / 6, i / 2 % 3, i % 2});
    };
    check_array(it.at("O"), {2, 3, 2, 3, 2}, [&](const Shape& p) {
        const double mean = sum(12, [&](auto i) { return in_group(p, i); }) / 12;
        const double square = sum(12, [&](auto i) { return std::pow(in_group(p, i), 2); }) / 12;
        return at(it.at("gamma"), {p[1], p[2]}) * (at(it.at("I"), p) - mean) /
                   std::sqrt(square - mean * mean + 1e-5) +
               at(it.at("beta"), {p[1], p[2]});
    });
    const Arrays batch = run(
        "def batch(float momentum, float eps, float(N,C,H) I, float(C) rMeanIn, float(C) rVarIn)\n"
        "    -> (O, rMeanOut, rVarOut, mean, centered, var, expected, normalised) {\n"
        "    mean(c) +=! I(nn,c,hh)\n"
        "    mean(c) = mean(c) / (N*H)\n"
        "    rMeanOut(c) = (1 - momentum) * rMeanIn(c) + momentum * mean(c)\n"
        "    centered(n,c,h) = I(n,c,h) - rMeanOut(c)\n"
        "    var(n,c,h) = centered(n,c,h) * centered(n,c,h)\n"
        "    expected(c) +=! (var(n,c,h) + eps) / (N*H)\n"
        "    rVarOut(c) = rsqrt((1 - momentum) * rVarIn(c) + momentum * expected(c))\n"
        "    O(n,c,h) = centered(n,c,h) * rVarOut(c)\n"
        "    normalised(n,c,h) = O(n,c,h) }",
        {{"momentum", {{}, {1}}},
         {"eps", {{}, {0.01}}},
         {"I", array_of({3, 2, 4})},
         {"rMeanIn", array_of({2})},
         {"rVarIn", array_of({2})}});
    check_array(batch.at("normalised"), {3, 2, 4}, [&](const Shape& p) {
        const auto of_channel = [&](auto i) { return at(batch.at("I"), {i / 4, p[1], i % 4}); };
        const double mean = sum(12, of_channel) / 12;
        const double variance =
            sum(12, [&](auto i) { return std::pow(of_channel(i) - mean, 2) + 0.01; }) / 12;
        return (at(batch.at("I"), p) - mean) / std::sqrt(variance);
    });
}

TEST_CASE("a recommender: tables beside layers") {
    const std::string text =
        "def dper(float(E1,D) LUT1, int32(B,L1) I1, float(E2,D) LUT2, int32(B,L2) I2,\n"
        "         float(B,WX) I, float(WY,WX) W) -> (C1, C2, C3) {\n"
        "    C1(b,d) +=! LUT1(I1(b,l),d)\n"
        "    C2(b,d) +=! LUT2(I2(b,l),d)\n"
        "    C3(b,wy) +=! I(b,wxx) * W(wy,wxx) }\n"
        "def mlp3(float(B,N) I, float(O,N) W2, float(O) B2, float(P,O) W3, float(P) B3) -> (O2, "
        "O3) {\n"
        "    O2(b,o) +=! I(b,n) * W2(o,n)\n"
        "    O2(b,o) = O2(b,o) + B2(o)\n"
        "    O2(b,o) = fmax(O2(b,o), 0)\n"
        "    O3(b,p) +=! O2(b,o) * W3(p,o)\n"
        "    O3(b,p) = fmax(O3(b,p) + B3(p), 0) }";
    const Arrays it = run(text, {{"LUT1", array_of({6, 3})},
                                 {"I1", array_of({4, 5}, 6)},
                                 {"LUT2", array_of({4, 3})},
                                 {"I2", array_of({4, 2}, 4)},
                                 {"I", array_of({4, 3})},
                                 {"W", array_of({2, 3})}});
    for (const std::string number : {"1", "2"}) {
        const Array& places = it.at("I" + number);
        check_array(it.at("C" + number), {4, 3}, [&](const Shape& p) {
            return sum(places.shape[1], [&](auto l) {
                const auto row = static_cast<std::int64_t>(at(places, {p[0], l}));
                return at(it.at("LUT" + number), {row, p[1]});
            });
        });
    }
    const Definition mlp3 = parse_definitions(text).at(1);
    const Shapes shapes{{"I", {4, 5}}, {"W2", {3, 5}}, {"B2", {3}}, {"W3", {2, 3}}, {"B3", {2}}};
    CHECK(ranges_of(mlp3, checked(mlp3), shapes).shapes.at("O3") == Shape{4, 2});
}

TEST_CASE("products of Kronecker's kind, with temporaries") {
    const Arrays it =
        run("def kronecker(float(D0,N0) W0, float(D1,N1) W1, float(D2,N2) W2, float(M,N0,N1,N2) X) "
            "-> (Y) {\n"
            "    XW2(m,n0,n1,d2) +=! X(m,n0,n1,n2) * W2(d2,n2)\n"
            "    XW1(m,n0,d1,d2) +=! XW2(m,n0,n1,d2) * W1(d1,n1)\n"
            "    Y(m,d0,d1,d2) +=! XW1(m,n0,d1,d2) * W0(d0,n0) }",
            {{"W0", array_of({2, 3})},
             {"W1", array_of({3, 2})},
             {"W2", array_of({2, 4})},
             {"X", array_of({2, 3, 2, 4})}});
    check_array(it.at("Y"), {2, 2, 3, 2}, [&](const Shape& p) {
        return sum(24, [&](auto i) {
            const std::int64_t a = i / 8, b = i / 4 % 2, c = i % 4;
            return at(it.at("X"), {p[0], a, b, c}) * at(it.at("W0"), {p[1], a}) *
                   at(it.at("W1"), {p[2], b}) * at(it.at("W2"), {p[3], c});
        });
    });
}

}  // namespace
}  // namespace dlprim
