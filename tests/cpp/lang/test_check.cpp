#include <string>

#include <doctest/doctest.h>

#include "lang/formulas.h"

namespace dlprim {
namespace {

// Of statements on parameters of every kind.
std::string refused(const std::string& statements, const std::string& returns = "y") {
    const Definition it = definition_of(
        "def f(float(N,K) x, float(K) w, int32(N) I, bool(N) m, float s, bool c) -> (" + returns +
        ") {\n" + statements + "\n}");
    return refusal_of([&] { checked(it); });
}

constexpr const char* kNothing = "nothing was refused";

TEST_CASE("names are sizes, tensors or indices") {
    const Symbols symbols =
        checked(definition_of("def f(float(N,4) x, uint8(N) I, float s) -> (y, z) {\n"
                              "    t(n) +=! x(I(n),k) * s\n"
                              "    y(n) = t(n) > 0 ? N : n\n"
                              "    z += t(n) }"));
    CHECK(symbols.sizes.size() == 1);
    CHECK(symbols.sizes.contains("N"));
    CHECK(symbols.is_index("n"));
    CHECK(symbols.is_index("k"));
    CHECK(symbols.tensors.at("x").is_parameter);
    CHECK(symbols.tensors.at("x").rank == 2);
    CHECK(symbols.tensors.at("I").type == ValueType::integer);
    CHECK(symbols.tensors.at("s").rank == 0);
    CHECK(symbols.tensors.at("t").type == ValueType::real);
    CHECK_FALSE(symbols.tensors.at("t").is_in_out);
    CHECK(symbols.tensors.at("y").type == ValueType::integer);
    CHECK_FALSE(symbols.tensors.at("y").is_in_out);
    CHECK(symbols.tensors.at("z").is_in_out);
}

TEST_CASE("integers become real where real numbers are written to the same result") {
    const auto type = [](const std::string& statements) {
        const Definition it =
            definition_of("def f(float(N) x, int32(N) I) -> (y, z) { " + statements + " }");
        return checked(it).tensors.at("y").type;
    };
    CHECK(type("y(i) = I(i)/2  z(i) = y(i)") == ValueType::integer);
    CHECK(type("y(i) = 0 where i in 0:2  z(i) = y(i)  y(i) += x(i)") == ValueType::real);
    CHECK(type("y(i) = x(i) < 1  z(i) = y(i) ? 0 : 1") == ValueType::truth);
    CHECK(type("y(i) = fabs(I(i))  z(i) = y(i)") == ValueType::real);
    CHECK(type("y(i) = int(x(i))  z(i) = y(i)") == ValueType::integer);
    // z is 0 before it is known to be real, and y follows it.
    CHECK(type("z(i) = 0 where i in 0:2  y(i) = z(i)  z(i) = x(i)") == ValueType::real);
}

TEST_CASE("what is read or added to first is the caller's array") {
    const auto in_out = [](const std::string& statements) {
        const Definition it = definition_of("def f(float(N) x) -> (y) { " + statements + " }");
        return checked(it).tensors.at("y").is_in_out;
    };
    CHECK(in_out("y(i) += x(i)"));
    CHECK(in_out("y(i) max= x(i)"));
    CHECK(in_out("y(i) = 2*y(i) + x(i)"));
    CHECK_FALSE(in_out("y(i) +=! x(i)  y(i) += x(i)"));
    CHECK(refused("t(n) += s where n in 0:N\ny(n) = t(n)") ==
          "The tensor t is read or added to before it is written, expected a statement for it in "
          "front, or '+=!' (line 2, column 1).");
    CHECK(refused("y(n) = t(n)\nt(n) = x(n,0)").find("The tensor t is read or added") == 0);
}

TEST_CASE("indices stand bare on the left, and are reduced by something") {
    CHECK(refused("y(n) = x(n,k)") ==
          "The index k stands on the right only, expected '+=!' or another reduction instead of "
          "'=' (line 2, column 1).");
    CHECK(refused("y(n,n) = x(n,0)").find("A place of the result y is no index of its own") == 0);
    CHECK(refused("y(2*n) = x(n,0)").find("A place of the result y is no index of its own") == 0);
    CHECK(refused("y(N) = x(n,0)").find("A place of the result y is no index of its own") == 0);
    CHECK(refused("y?(n) = x(n,0)") ==
          "The result has a '?', expected one on the right only (line 2, column 1).");
    CHECK(refused("y(n) = y(n) + x(n,0)") == kNothing);
    CHECK(refused("y(n) = x(n,0)  y(n) = y(n-1)").find("The result y is read while") == 0);
    CHECK(refused("y(n) = x(n,0)  y(n) += y(n)*w(k)").find("The result y is read while") == 0);
}

TEST_CASE("parameters stay as they are, and names have one meaning") {
    CHECK(refused("x(n,k) = 1") ==
          "The parameter x is written, expected another name: arguments are left as they are (line "
          "2, column 1).");
    CHECK(refused("N(n) = x(n,0)").find("The name N is a size's") == 0);
    CHECK(refused("exp(n) = x(n,0)").find("The name exp is a function's") == 0);
    CHECK(refused("y(n) = tanh + x(n,0)").find("The name tanh is a function's") == 0);
    CHECK(refused("y(n) = x(n,0)\ny(n,k) = x(n,k)").find("The result y had 1 dimension before") ==
          0);
    CHECK(refusal_of([] {
              checked(definition_of("def f(float(N) x, float x) -> (y) {}"));
          }).find("The name x is defined twice") == 0);
    CHECK(refusal_of([] {
              checked(definition_of("def f(float a, float(a) x) -> (y) {}"));
          }).find("The tensor a stands where a size was expected") == 0);
}

TEST_CASE("results are written, once each") {
    CHECK(refused("t(n) = x(n,0)") == "The result y is never written (line 2, column 1).");
    CHECK(refused("", "y").find("The result y is never written") == 0);
    CHECK(refused("y(n) = x(n,0)", "y,y").find("The result y is returned twice") == 0);
    CHECK(refused("y(n) = x(n,0)", "y,x").find("The result x is never written") == 0);
}

TEST_CASE("reads have a place for every dimension, integers all of them") {
    CHECK(refused("y(n) = x(n)") ==
          "The tensor x has 2 dimensions, expected as many places and not 1 (line 2, column 8).");
    CHECK(refused("y(n) = x").find("The tensor x has 2 dimensions") == 0);
    CHECK(refused("y(n) = s(n)").find("The tensor s has 0 dimensions") == 0);
    CHECK(refused("y(n) = z(n)") ==
          "The name z is no tensor and no function, expected one of them (line 2, column 8).");
    CHECK(refused("y(n) = w(x(n,0))").find("A place of w is no integer") == 0);
    CHECK(refused("y(n) = w(0.5*n)").find("A place of w is no integer") == 0);
    CHECK(refused("y(n) = w(s) where n in 0:2").find("A place of w is no integer") == 0);
    CHECK(refused("y(n) = w(m(n))").find("A place of w is no integer") == 0);
    CHECK(refused("y(n) = w(I(n) + n/2)") == kNothing);
}

TEST_CASE("conditions are truths, and numbers are not") {
    CHECK(refused("y(n) = x(n,0) ? 1 : 0") ==
          "A number stands where a condition was expected (x > 0) (line 2, column 8).");
    CHECK(refused("y(n) = !x(n,0)").find("A number stands") == 0);
    CHECK(refused("y(n) = x(n,0) > 0 && s ? 1 : 0").find("A number stands") == 0);
    CHECK(refused("y(n) = (x(n,0) > 0) + 1").find("A condition stands") == 0);
    CHECK(refused("y(n) = exp(m(n))").find("A condition stands") == 0);
    CHECK(refused("y(n) = c ? m(n) : 1").find("A number stands") == 0);
    CHECK(refused("y(n) = c ? 1 : m(n)").find("A condition stands") == 0);
    CHECK(refused("y +=! m(n)").find("A condition stands") == 0);
    CHECK(refused("y(n) = x(n,0)  y(n) = m(n)").find("A condition stands") == 0);
    CHECK(refused("y(n) = m(n) && c || x(n,0) < s") == kNothing);
    CHECK(refused("y(n) = float(m(n)) + bool(s) ? 1 : 0").find("A condition stands") == 0);
    CHECK(refused("y(n) = bool(s) ? 1 : 0.5*I(n)") == kNothing);
}

TEST_CASE("functions have their number of operands") {
    CHECK(refused("y(n) = fmax(x(n,0))") ==
          "The function fmax has 1 operand, expected 2 (line 2, column 8).");
    CHECK(refused("y(n) = exp()").find("The function exp has 0 operands, expected 1") == 0);
    CHECK(refused("y(n) = max(1,2,3)").find("The function max has 3 operands, expected 2") == 0);
    CHECK(refused("y(n) = -fma(x(n,0), s, rsqrt(s)) - gelu(s)") == kNothing);
}

TEST_CASE("clauses are about indices of their statement, in numbers and sizes") {
    CHECK(refused("y(n) = 1 where n in 0:s") ==
          "The name s stands in the range of n, expected numbers and sizes (line 2, column 23).");
    CHECK(refused("y(n,k) = 1 where n in 0:k, k in 0:2").find("The name k stands in the range") ==
          0);
    CHECK(refused("y(n) = 1 where n in 0:2.5").find("The range of n has a bound that is no int") ==
          0);
    CHECK(refused("y(n) = 1 where x in 0:2") ==
          "The name x is no index, expected one (line 2, column 16).");
    CHECK(refused("y(n) = 1 where k in 0:2").find("The index k has a range only") == 0);
    CHECK(refused("y(n) = 1 where exists x(n,k)").find("The index k has a range only") == 0);
    CHECK(refused("y(n) = 1 where n in 0:2, n in 0:3").find("The index n has two ranges") == 0);
    CHECK(refused("y(n) = 1 where exists n").find("There is no read behind 'exists'") == 0);
    CHECK(refused("y(n) = 1 where exists z(n)").find("The name z is no tensor") == 0);
    CHECK(refused("y(n) = 1 where exists I(n)") == kNothing);
}

TEST_CASE("texts are checked when they are parsed") {
    const std::string good = "def f(float(N) x) -> (y) { y(n) = x(n) }\n";
    CHECK(checked_definitions(good + "def g(float(N) x) -> (y) { y(n) = 2 * x(n) }").size() == 2);
    const auto refusal = [&](const std::string& text) {
        return refusal_of([&] { checked_definitions(good + text); });
    };
    CHECK(refusal("def g(float(N) x) -> (y) { y(n) = z(n) }").find("The name z is no tensor") == 0);
    CHECK(refusal("def f(float(N) x) -> (y) { y(n) = 1 }").find("The name f is defined twice") ==
          0);
    CHECK(checked_contraction("y(n) +=! x(n,c)").parameters.size() == 1);
    CHECK(refusal_of([] { checked_contraction("y(n) = x(n,c)"); }).find("The index c stands") == 0);
}

}  // namespace
}  // namespace dlprim
