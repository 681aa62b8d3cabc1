#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "lang/formulas.h"

namespace dlprim {
namespace {

// As a text with a pair of parentheses for every operator.
std::string shown(const Expression& it) {
    std::string operands;
    for (const Expression& operand : it.operands) {
        operands += (operands.empty() ? "" : ",") + shown(operand);
    }
    switch (it.kind) {
        case Expression::Kind::number:
            return it.is_integer ? std::to_string(static_cast<std::int64_t>(it.number))
                                 : std::to_string(it.number);
        case Expression::Kind::name: return it.name;
        case Expression::Kind::read:
            return it.name + (it.may_lie_outside ? "?" : "") + "[" + operands + "]";
        case Expression::Kind::call: return it.name + "(" + operands + ")";
    }
    return "";
}

std::string value_of(const std::string& text) {
    return shown(parse_statement("y(i) = " + text).value);
}

std::string refused(const std::string& text) {
    return refusal_of([&] { parse_definitions(text); });
}

TEST_CASE("a definition is a value") {
    const Definition it = definition_of(R"(# a layer
def fcrelu(float(B,I) x, float(O,8) w, half s) -> (y) {
    y(b,o) +=! x(b,i) * w(o,i)  # all of it
    y(b,o) = fmax(y(b,o) + s, 0)
})");
    CHECK(it.name == "fcrelu");
    REQUIRE(it.parameters.size() == 3);
    CHECK(it.parameters[1].type == "float");
    CHECK(it.parameters[1].name == "w");
    CHECK(shown(it.parameters[1].dimensions[0]) == "O");
    CHECK(it.parameters[1].dimensions[1].number == 8);
    CHECK(it.parameters[2].dimensions.empty());
    CHECK(it.returns == std::vector<std::string>{"y"});
    REQUIRE(it.statements.size() == 2);
    CHECK(it.statements[0].reduction == Reduction::sum);
    CHECK(it.statements[0].initializes);
    CHECK(it.statements[0].indices == std::vector<std::string>{"b", "o"});
    CHECK(shown(it.statements[0].value) == "*(x[b,i],w[o,i])");
    CHECK(shown(it.statements[1].value) == "fmax(+(y[b,o],s),0)");
    CHECK(it.text.substr(static_cast<std::size_t>(it.statements[1].position), 6) == "y(b,o)");
}

TEST_CASE("several definitions stand in a text, with one result also without parentheses") {
    const auto all = parse_definitions(
        "def f(float(N) x) -> a { a(i) = x(i) } def g(float(N) x) -> (a,b) { a(i) = x(i)\nb(i) = "
        "a(i) }");
    REQUIRE(all.size() == 2);
    CHECK(all[0].returns == std::vector<std::string>{"a"});
    CHECK(all[1].statements.size() == 2);
    CHECK(refused("def f() -> (a) {} def f() -> (a) {}") ==
          "The name f is defined twice (line 1, column 23).");
}

TEST_CASE("operators bind as in C") {
    CHECK(value_of("1+2*3-4") == "-(+(1,*(2,3)),4)");
    CHECK(value_of("-a*b%c/d") == "/(%(*(-(a),b),c),d)");
    CHECK(value_of("a<b==c && d || !e") == "||(&&(==(<(a,b),c),d),!(e))");
    CHECK(value_of("a ? b : c ? d : e") == "?:(a,b,?:(c,d,e))");
    CHECK(value_of("(a+b)*c") == "*(+(a,b),c)");
    CHECK(value_of("min(a, max(b, 2.5e0)) - float(int8(c))") ==
          "-(min(a,max(b,2.500000)),float(int8(c)))");
    CHECK(value_of("1e-2 + .5 + 3.") == "+(+(0.010000,0.500000),3.000000)");
    CHECK(value_of("infx + nan(i) + info + max0") == "+(+(+(infx,nan[i]),info),max0)");
}

TEST_CASE("every assignment joins in its own way") {
    const auto kind = [](const std::string& text) {
        const Statement it = parse_statement(text);
        return std::pair{it.reduction, it.initializes};
    };
    CHECK(kind("v = x(i)") == std::pair{Reduction::none, true});
    CHECK(kind("v += x(i)") == std::pair{Reduction::sum, false});
    CHECK(kind("v+=!x(i)") == std::pair{Reduction::sum, true});
    CHECK(kind("v *= x(i)") == std::pair{Reduction::product, false});
    CHECK(kind("v *=! x(i)") == std::pair{Reduction::product, true});
    CHECK(kind("v max= x(i)") == std::pair{Reduction::largest, false});
    CHECK(kind("v max=! x(i)") == std::pair{Reduction::largest, true});
    CHECK(kind("v min=!x(i)") == std::pair{Reduction::smallest, true});
    CHECK(kind("v min=x(i)") == std::pair{Reduction::smallest, false});
}

TEST_CASE("clauses give ranges, bound ranges, and name expressions") {
    const Statement it = parse_statement(
        "y(i) +=! x(i,k) * a where k in 0:2*N, i in 0..2, exists z(i), a = b + 1, b = 3");
    REQUIRE(it.ranges.size() == 2);
    CHECK(it.ranges[0].index == "k");
    CHECK(shown(it.ranges[0].end) == "*(2,N)");
    CHECK(it.ranges[1].end.number == 2);
    REQUIRE(it.exists.size() == 1);
    CHECK(shown(it.exists[0]) == "z[i]");
    CHECK(shown(it.value) == "*(x[i,k],+(3,1))");
}

TEST_CASE("inputs may be called in, as in the paper of the language") {
    const Definition it = definition_of(
        "def fcrelu(float(B,I) in, float(O,I) weight, float(O) bias) -> (out) {\n"
        "    out(i,j) = bias(j) where i in 0:B\n"
        "    out(i,j) += in(i,k) * weight(j,k) where exists in(i,k)\n"
        "    out(i,j) = fmax(out(i,j), 0) }");
    CHECK(shown(it.statements[1].value) == "*(in[i,k],weight[j,k])");
    CHECK_NOTHROW(checked(it));
}

TEST_CASE("a question mark behind a scalar is a condition, else a read") {
    const Definition it = definition_of(
        "def f(float(N) x, bool c) -> (y) {\n"
        "    s = c\n"
        "    y(i) = x?(i-1) + (c ?(x(i)) : 0) + (s ? (2) : x ? (i+1)) }");
    CHECK(shown(it.statements[1].value) == "+(+(x?[-(i,1)],?:(c,x[i],0)),?:(s,2,x?[+(i,1)]))");
}

TEST_CASE("one statement is a definition of the tensors that it reads") {
    const Definition it = parse_contraction("y(n) += x?(n-1,k) * w(k) * s() + x(n,k) + y(n)");
    REQUIRE(it.parameters.size() == 3);
    CHECK(it.parameters[0].name == "x");
    REQUIRE(it.parameters[0].dimensions.size() == 2);
    CHECK(it.parameters[0].dimensions[0].name == "x.0");
    CHECK(it.parameters[0].dimensions[1].name == "x.1");
    CHECK(it.parameters[1].name == "w");
    CHECK(it.parameters[1].dimensions[0].name == ".k");
    CHECK(it.parameters[2].dimensions.empty());
    CHECK(it.returns == std::vector<std::string>{"y"});
    CHECK_THROWS_AS(parse_contraction("y(n) = x(n) z(n) = x(n)"), std::invalid_argument);
}

TEST_CASE("what is wrong is quoted with its line and a mark") {
    try {
        parse_definitions("def f(float(N) x) -> (y) {\n\t\xC3\xA4y(i) = x(i)\n}");
        FAIL("nothing was refused");
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()) ==
              "The formula has '\xC3\xA4', which is no part of any (line 2, column 2).\n"
              "    \t\xC3\xA4y(i) = x(i)\n"
              "    \t^");
    }
    const auto inside = [](const std::string& text) {
        return refused("def f(float(N) x) -> (y) { y(i) " + text + " }");
    };
    CHECK(inside("= x(i") == "The formula has '}', expected ',' or ')' (line 1, column 39).");
    CHECK(inside("x(i)") ==
          "The formula has 'x', expected '=', '+=!' or another assignment (line 1, column 33).");
    CHECK(inside("= where") ==
          "The formula has 'where', expected a name, a number or '(' (line 1, column 35).");
    CHECK(inside("= a ? b") == "The formula has '}', expected ':' (line 1, column 41).");
    CHECK(inside("= 1 where i = ") ==
          "The formula has '}', expected a name, a number or '(' (line 1, column 48).");
    CHECK(inside("= 1 where i 0:3") ==
          "The formula has '0', expected 'in' or '=' (line 1, column 45).");
    CHECK(inside("= 1 where i in 3") ==
          "The formula has '}', expected ':' or '..' (line 1, column 50).");
    CHECK(inside("= 99999999999") ==
          "The formula has '99999999999', expected a number of at most 2^31 (line 1, column 35).");
    CHECK(inside("= 1e999").find("expected a number within the range") != std::string::npos);
    CHECK(refused("") == "The formula has nothing more, expected 'def' (line 1, column 1).");
    CHECK(refused("def f(x) -> (y) {}") ==
          "The formula has 'x', expected a type such as float (line 1, column 7).");
    CHECK(refused("def f(float(2.5) x) -> (y) {}") ==
          "A size is no whole number (line 1, column 13).");
    CHECK(
        refused("def f(float x) -> (float y) {}") ==
        "The formula has 'float', expected the name of a result, whose type follows from its value "
        "(line 1, column 20).");
    CHECK(refused("def f(float x) -> (y) {") ==
          "The formula has nothing more, expected the name of a result (line 1, column 24).");
}

TEST_CASE("no text exhausts the stack or memory") {
    const auto refuses = [](const std::string& text) {
        CHECK(refusal_of([&] { parse_statement("y(i) = " + text); }) != "nothing was refused");
    };
    const auto repeated = [](const std::string& text, int count) {
        std::string made;
        for (int i = 0; i < count; ++i) made += text;
        return made;
    };
    for (const char* const it : {"(", "-", "!", "x(", "1 ? ", "1 ? 2 : ", "exp(", "1+", "1+("}) {
        refuses(repeated(it, 100000));
    }
    refuses(repeated("1+", 100000) + "1");
    CHECK_THROWS_AS(tokens_of(std::string((1 << 20) + 1, ' ')), std::invalid_argument);
    std::string doubling = "a where a = b+b";
    for (char name = 'b'; name < 'z'; ++name) {
        const char next = static_cast<char>(name + 1);
        doubling += std::string(", ") + name + " = " + next + "+" + next;
    }
    refuses(doubling);
    CHECK(value_of(repeated("(", 150) + "i" + repeated(")", 150)) == "i");
    CHECK_NOTHROW(parse_statement("y(i) = " + repeated("x(i) + ", 1000) + "1"));
}

TEST_CASE("texts with random changes are refused or accepted") {
    const std::vector<std::string> seeds = {
        "def f(float(N,C) x, int32(N,K) I, bool c) -> (y, m) {\n"
        "    t(n,c) = x?(n-1,c+2) where n in 0:N, c in 0:C\n"
        "    y(n) +=! x(n,c) * t(n,c) + (c ? (1) : exp(x(n,c)/2)) where exists I(n,k)\n"
        "    m max=! y(n) * -2.5e-1 }",
        "def g(float(8) W, float(H) x) -> (y) { y(h) +=! x(2*h+k) * W(k) where k in 0..3 }"};
    const std::string letters = "()?:,+-*/%!=<>&|.{}# \nexNi0129w";
    std::mt19937 random(7);
    const auto any = [&](std::size_t below) {
        return static_cast<std::size_t>(random() % static_cast<std::uint32_t>(below));
    };
    int accepted = 0;
    for (int i = 0; i < 6000; ++i) {
        std::string text = seeds[any(seeds.size())];
        for (std::size_t changes = 1 + any(2); changes > 0; --changes) {
            const std::size_t at = any(text.size());
            switch (any(4)) {
                case 0: text.erase(at, 1 + any(3)); break;
                case 1: text.insert(at, 1, letters[any(letters.size())]); break;
                case 2: text[at] = letters[any(letters.size())]; break;
                default: text.insert(at, text.substr(any(text.size()), any(20))); break;
            }
        }
        try {
            Definition it = parse_definitions(text).front();
            const Symbols symbols = checked(it);
            Arrays arrays;
            for (const auto& [name, tensor] : symbols.tensors) {
                if (tensor.is_parameter || tensor.is_in_out) {
                    arrays[name] = array_of(Shape(tensor.rank, 8), 4);
                }
            }
            // Few values of every index.
            for (const auto& range : ranges_of(it, symbols,
                                               [&] {
                                                   Shapes shapes;
                                                   for (const auto& [name, array] : arrays)
                                                       shapes[name] = array.shape;
                                                   return shapes;
                                               }())
                                         .statements) {
                double count = 1;
                for (const IndexRange& index : range) count *= static_cast<double>(index.extent);
                if (count > 1e5) throw std::invalid_argument("It takes long.");
            }
            interpret(it, arrays);
            ++accepted;
        } catch (const std::invalid_argument&) {
        }
    }
    CHECK(accepted > 100);
}

}  // namespace
}  // namespace dlprim
