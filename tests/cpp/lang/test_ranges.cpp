#include <string>

#include <doctest/doctest.h>

#include "lang/formulas.h"

namespace dlprim {
namespace {

std::string refused(const std::string& text, const Shapes& shapes, const Constants& given = {}) {
    return refusal_of([&] { extents_of(text, shapes, given); });
}

AffineSum affine(const std::string& text, const Constants& constants = {}) {
    return affine_of(parse_statement("y = " + text).value, constants).value();
}

TEST_CASE("dimensions may be formulas of sizes") {
    const std::string text =
        "def f(float((H+1)/2,min(H,3)) x, float(H) z) -> (y) { y(i) +=! x(i,j) * z(2*i) }";
    CHECK(extents_of(text, {{"x", {3, 3}}, {"z", {5}}}) == "i=3 j+=3");
    CHECK(refusal_of([&] { extents_of(text, {{"x", {4, 3}}, {"z", {5}}}); }) ==
          "The argument x has a dimension 0 of 4, expected 3 (line 1, column 31).");
    const auto refusal = [](const std::string& dimension) {
        return refusal_of([&] {
            checked(definition_of("def f(float(" + dimension + ") x) -> (y) { y = x(0) }"));
        });
    };
    CHECK(refusal("2*H") ==
          "The name H stands in a dimension of x, expected numbers and sizes that are dimensions "
          "themselves (line 1, column 15).");
    CHECK(refusal("exp(2)") == "A dimension of x is no integer, expected one (line 1, column 13).");
}

TEST_CASE("sums of indices are found once sizes are numbers") {
    CHECK(affine("2*p + r - 1") == AffineSum{{{2, "p"}, {1, "r"}}, -1});
    CHECK(affine("N*(p + 2) - p*3 - -r", {{"N", 3}}) == AffineSum{{{1, "r"}}, 6});
    CHECK(affine("min(N/2, 5) - max(-N, -7) + -7 % 4 + -7 / 2", {{"N", 8}}) == AffineSum{{}, 8});
    const auto is_none = [](const std::string& text) {
        return !affine_of(parse_statement("y = " + text).value, {});
    };
    CHECK(is_none("i*j"));
    CHECK(is_none("i/2"));
    CHECK(is_none("i + 0.5"));
    CHECK(is_none("x(i) + 1"));
    CHECK(is_none("1/0"));
    CHECK(is_none("-(i%2)"));
    CHECK(is_none("i < 2 ? 1 : 0"));
    CHECK_THROWS_AS(affine("2147483648*2147483648*2147483648"), std::invalid_argument);
}

TEST_CASE("accesses bound what stands in them") {
    CHECK(extents_of("O(i) = I(123*i)", {{"I", {1000}}}) == "i=9");
    CHECK(extents_of("O(i) +=! I(i+kh) * W(kh)", {{"I", {10}}, {"W", {3}}}) == "i=8 kh+=3");
    CHECK(extents_of("O(i) +=! I(2*i+kh) * W(kh)", {{"I", {10}}, {"W", {3}}}) == "i=4 kh+=3");
    CHECK(extents_of("O(i,j,k) = I(j, i+j, k)", {{"I", {4, 10, 5}}}) == "i=7 j=4 k=5");
    CHECK(extents_of("O(i) = A(i) + B(0+i)", {{"A", {10}}, {"B", {10}}}) == "i=10");
    CHECK(extents_of("O(i) = A(i) + B(0+i)", {{"A", {10}}, {"B", {7}}}) == "i=7");
    CHECK(refused("O(i) = A(i) + B(i)", {{"A", {10}}, {"B", {7}}}) ==
          "The argument B has a dimension 0 of 7, expected 10 as another dimension along i has "
          "(line 1, column 15).");
    CHECK(extents_of("O(i) = A(i) + B?(i)", {{"A", {10}}, {"B", {7}}}) == "i=10");
    CHECK(extents_of("O(i,j) = A(i,j) + A(j,i)", {{"A", {7, 7}}}) == "i=7 j=7");
    CHECK(refused("O(i,j) = A(i,j) + A(j,i)", {{"A", {10, 7}}}) ==
          "The argument A has a dimension 1 of 7, expected 10 as another dimension along i has "
          "(line 1, column 10).");
    CHECK(refused("O(i,j) = A(i,j) * A(j,i) * B(i)", {{"A", {7, 7}}, {"B", {9}}}) ==
          "The argument B has a dimension 0 of 9, expected 7 as another dimension along i has "
          "(line 1, column 28).");
    CHECK(extents_of("O(h,w) +=! I(2*h+3*w+kh, 2*w+kw) * W(kh,kw)",
                     {{"I", {20, 9}}, {"W", {3, 2}}}) == "h=5 w=4 kh+=3 kw+=2");
    CHECK(extents_of("O(m,n) +=! A(m,k) * B(k,n)", {{"A", {4, 6}}, {"B", {6, 5}}}) ==
          "m=4 n=5 k+=6");
    CHECK(extents_of("B(x) +=! A(xp) * K(4+x-xp) where xp in 0:5", {{"A", {5}}, {"K", {9}}}) ==
          "x=5 xp+=5");
    CHECK(extents_of("v min=! S(r)", {{"S", {6}}}) == "r+=6");
    CHECK(extents_of("O(i) = I(6-i)", {{"I", {7}}}) == "i=7");
}

TEST_CASE("clauses and sizes come first") {
    CHECK(extents_of("O(b,h) max=! I(b,2*h+kh) where kh in 0:2", {{"I", {3, 9}}}) ==
          "b=3 h=4 kh+=2");
    CHECK(extents_of("O(i,j) = 3 where i in 0:10, j in 0..2", {}) == "i=10 j=2");
    CHECK(extents_of("O(i) = 3", {}, {{"i", 5}}) == "i=5");
    CHECK(extents_of("y(n,k,p) +=! x?(n,c,2*p+r-3) * w(k,c,r)",
                     {{"x", {2, 3, 224}}, {"w", {64, 3, 7}}},
                     {{"p", 112}}) == "n=2 k=64 p=112 c+=3 r+=7");
    CHECK(extents_of("O(i,j) = I(i+2-j, i+j) where i in 0:3", {{"I", {5, 5}}}) == "i=3 j=3");
    CHECK(extents_of("O(i) = I(i) where exists J(i)", {{"I", {9}}, {"J", {4}}}) == "i=4");
    CHECK(extents_of("O(i) = I(i+1) where i in 0:8", {{"I", {9}}}) == "i=8");
    CHECK(refused("O(i) = I(i+1) where i in 0:9", {{"I", {9}}}) ==
          "The places 1 to 9 of I are not all in its dimension of 9, expected ranges that fit, or "
          "'?' behind its name for zeros outside (line 1, column 10).");
    CHECK(refused("O(i) = 3 where i in 0:4", {}, {{"i", 5}}) ==
          "The extent of i is given as 5, expected 4 (line 1, column 1).");
    CHECK(refused("O(i) = 3", {}, {{"i", 5}, {"k", 4}}) ==
          "The formula has no size and no index k, expected one of them for the given 4.");
    CHECK(refused("O(i) = 3", {}, {{"i", -1}}).find("given as -1, expected at least 0") !=
          std::string::npos);
}

TEST_CASE("sizes have one value, and results have their shapes") {
    const std::string text =
        "def f(float(N,K) x, float(K,4) w) -> (y) {\n"
        "    t(n,j) +=! x(n,k) * w(k,j)\n"
        "    y(n) +=! t(n,j) * t(n+1,j) where n in 0:N-1 }";
    CHECK(extents_of(text, {{"x", {3, 5}}, {"w", {5, 4}}}) == "n=3 j=4 k+=5 | n=2 j+=4");
    CHECK(refused(text, {{"x", {3, 5}}, {"w", {6, 4}}}) ==
          "The argument w has a dimension 0 of 6, expected K = 5 (line 1, column 32).");
    CHECK(refused(text, {{"x", {3, 5}}, {"w", {5, 3}}}).find("dimension 1 of 3, expected 4") !=
          std::string::npos);
    CHECK(refused(text, {{"x", {3, 5}}, {"w", {5, 4}}}, {{"N", 4}}).find("expected N = 4") !=
          std::string::npos);
    CHECK(refused(text, {{"x", {3, 5}}}) == "The argument w is missing, expected its shape.");
    CHECK(refused(text, {{"x", {3}}, {"w", {5, 4}}}) ==
          "The argument x has 1 dimensions, expected 2 of at least 0.");
    CHECK(refused(text, {{"x", {3, -1}}, {"w", {5, 4}}}).find("expected 2 of at least 0") !=
          std::string::npos);
    CHECK(refused(text, {{"q", {3}}}) == "The formula has no tensor q, expected one.");
    const Definition it = definition_of(text);
    const Ranges ranges = ranges_of(it, checked(it), {{"x", {3, 5}}, {"w", {5, 4}}});
    CHECK(ranges.shapes.at("t") == Shape{3, 4});
    CHECK(ranges.shapes.at("y") == Shape{2});
    CHECK(ranges.sizes == Constants{{"K", 5}, {"N", 3}});
}

TEST_CASE("extents may be 0") {
    CHECK(extents_of("O(i) +=! I(i+k) * W(k)", {{"I", {2}}, {"W", {3}}}) == "i=0 k+=3");
    CHECK(extents_of("O(i) +=! I(i,k)", {{"I", {2, 0}}}) == "i=2 k+=0");
    CHECK(extents_of("O(i) = 1 where i in 0:0", {}) == "i=0");
    CHECK(refused("O(i) +=! I(i+k) * W(k)", {{"I", {1}}, {"W", {3}}}) ==
          "The range of i would end at -1, expected tensors of which the larger ones hold the "
          "smaller ones (line 1, column 12).");
}

TEST_CASE("ranges that do not follow are asked for") {
    const std::string asked = "The shapes of the tensors could not infer ranges of ";
    CHECK(refused("O(i,j) = 3", {}) ==
          asked +
              "i, j, expected a clause such as 'where i in 0:10', or sizes for them (line 1, "
              "column 1).");
    CHECK(refused("O(i,j) = A(i+j,i+j,i+j)", {{"A", {9, 9, 9}}}).find(asked + "i, j,") == 0);
    CHECK(refused("O(i,j) = I(10+i-j, i+j)", {{"I", {30, 30}}}).find(asked + "i, j,") == 0);
    CHECK(refused("O(i) = S(0) * i", {{"S", {3}}}).find(asked + "i,") == 0);
    CHECK(refused("O(i) = x?(i-1)", {{"x", {3}}}).find(asked + "i,") == 0);
    CHECK(refused("O(i) = x(i/2)", {{"x", {3}}}).find(asked + "i,") == 0);
    CHECK(refused("O(i) = x(i) where i in 8:4", {{"x", {9}}})
              .find("The range of i would begin at 8, expected 0") == 0);
    CHECK(refused("O(i) = x(i) where i in 0:2-4", {{"x", {9}}})
              .find("The range of i goes from 0 to -2, expected an end of at least 0") == 0);
}

TEST_CASE("what is left over has to hold by itself") {
    CHECK(extents_of("O(i,j) = I(i,i+j,j)", {{"I", {3, 6, 4}}}) == "i=3 j=4");
    CHECK(refused("O(i,j) = I(i,i+j,j)", {{"I", {3, 5, 4}}})
              .find("The places 0 to 5 of I are not all in its dimension of 5") == 0);
    CHECK(refused("O(i,j) = B(i)*C(i+j)*D(j)", {{"B", {3}}, {"C", {4}}, {"D", {3}}})
              .find("The places 0 to 4 of C") == 0);
    CHECK(refused("O(i) = I(i) + I(i-4) where i in 0:4", {{"I", {4}}})
              .find("The places -4 to -1 of I") == 0);
    CHECK(refused("O(i) = I(i) + I(7)", {{"I", {7}}}).find("The places 7 to 7 of I") == 0);
}

TEST_CASE("ranges begin at 0, and a formula that would is proposed") {
    CHECK(
        refused("O(i) = I(i-1)", {{"I", {9}}}) ==
        "The range of i would begin at 1, expected 0: write (i + 1) for i, say 'where i in 0:..', "
        "or read with '?', which gives zero outside (line 1, column 10).");
    CHECK(refused("O(i) = I(i+2)", {{"I", {9}}})
              .find("would begin at -2, expected 0: write (i - 2)") != std::string::npos);
    CHECK(refused("d(h) +=! o(h-k) * W(k)", {{"o", {9}}, {"W", {3}}}).find("begin at 2") !=
          std::string::npos);
    CHECK(refused("O(i) = I(i) where i in 1:4", {{"I", {9}}}).find("begin at 1") !=
          std::string::npos);
}

TEST_CASE("reads behind conditions and with a question mark give way") {
    CHECK(extents_of("O(i) = i > 1 ? I(i-2) + J(i) : J(i)", {{"I", {9}}, {"J", {5}}}, {{"i", 6}}) ==
          "i=6");
    CHECK(extents_of("O(i) = J(i) + (i > 1 ? I(i-2) : 0)", {{"I", {9}}, {"J", {5}}}) == "i=5");
    CHECK(extents_of("O(n,i,m) = i == 0 ? A(m,n) : B(m,n) where i in 0:2",
                     {{"A", {4, 5}}, {"B", {4, 5}}}) == "n=5 i=2 m=4");
    CHECK(extents_of("O(i) = I?(i) + J(i)", {{"I", {3}}, {"J", {5}}}) == "i=5");
    CHECK(extents_of("O(i) +=! I?(i,k)", {{"I", {3, 4}}}) == "i=3 k+=4");
    CHECK(extents_of("d(n,h) +=! o?(n,m,h-k) * W(m,k)", {{"o", {2, 3, 8}}, {"W", {3, 3}}},
                     {{"h", 10}}) == "n=2 h=10 m+=3 k+=3");
}

TEST_CASE("places that are read bound the indices inside them") {
    const std::string text =
        "def lut(float(E,D) L, int32(B,K) I) -> (O) { O(b,d) +=! L(I(b,k),d) }";
    CHECK(extents_of(text, {{"L", {100, 8}}, {"I", {3, 4}}}) == "b=3 d=8 k+=4");
    CHECK(extents_of("def g(float(B,N) I, int32(M) Idx) -> (O) { O(b,n) = I(b,Idx(n)) }",
                     {{"I", {3, 9}}, {"Idx", {4}}}) == "b=3 n=4");
}

TEST_CASE("results that are read first bound ranges too") {
    const std::string text =
        "def sgemm(float a, float b, float(M,K) A, float(K,N) B) -> (C) {\n"
        "    C(i,j) = b * C(i,j)\n"
        "    C(i,j) += a * A(i,k) * B(k,j) }";
    const Shapes shapes = {{"a", {}}, {"b", {}}, {"A", {2, 3}}, {"B", {3, 4}}, {"C", {2, 4}}};
    CHECK(extents_of(text, shapes) == "i=2 j=4 | i=2 j=4 k+=3");
    Shapes without = shapes;
    without.erase("C");
    CHECK(refused(text, without).find("could not infer ranges of i, j") != std::string::npos);
}

TEST_CASE("numbers that do not fit are refused") {
    const std::int64_t large = std::int64_t{1} << 62;
    CHECK(refused("O(i) = x(4*i+j) + w(j) where i in 0:1", {{"x", {large}}, {"w", {1}}})
              .find("The index j") == 0);
    CHECK(refused("O(i,j,k) = x(i) + w(j) + v(k)", {{"x", {large}}, {"w", {large}}, {"v", {9}}}) ==
          "A number of the formula does not fit 64 bits, expected less.");
    CHECK(refused("O(i,j) = x(2*i) + w(2147483648*i+2147483648*j)",
                  {{"x", {large}}, {"w", {large}}}) ==
          "A number of the formula does not fit 64 bits, expected less.");
}

TEST_CASE("an array of the caller is added to as a whole, unless a clause says how far") {
    CHECK(extents_of("y(n) += x(n)", {{"y", {5}}, {"x", {5}}}) == "n=5");
    CHECK(refused("y(n) += x(n)", {{"y", {10}}, {"x", {5}}}) ==
          "The result y has a dimension 0 of 10, expected 5 as what goes along n has, or a clause "
          "such as 'where n in 0:5' (line 1, column 3).");
    CHECK(refused("y(n) += x(n)", {{"y", {5}}, {"x", {10}}}) ==
          "The result y has a dimension 0 of 5, expected 10 as what goes along n has, or a clause "
          "such as 'where n in 0:5' (line 1, column 3).");
    CHECK(extents_of("y(n) += x(n) where n in 0:5", {{"y", {10}}, {"x", {7}}}) == "n=5");
    CHECK(extents_of("y(n) += x(n)", {{"y", {10}}, {"x", {7}}}, {{"n", 5}}) == "n=5");
}

}  // namespace
}  // namespace dlprim
