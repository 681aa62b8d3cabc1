#include <string>

#include <doctest/doctest.h>

#include "lang/formulas.h"
#include "lang/fusion.h"

namespace dlprim {
namespace {

// "1-3 n d | 4 n": statements from 1 on, and what they have in common.
std::string groups(const std::string& body, const Shapes& shapes = {{"x", {6, 5}}}) {
    const Definition definition =
        parse_definitions("def f(float(N,D) x) -> (y) {" + body + "}").front();
    const Symbols symbols = checked(definition);
    std::string text;
    for (const StatementGroup& it : groups_of(definition, ranges_of(definition, symbols, shapes))) {
        text += (text.empty() ? "" : " | ") + std::to_string(it.first + 1);
        if (it.count > 1) text += "-" + std::to_string(it.first + it.count);
        for (const std::string& index : it.common) text += " " + index;
    }
    return text;
}

TEST_CASE("statements that share indices are one group") {
    CHECK(groups("a(n) max=! x(n,d) b(n,d) = x(n,d) - a(n) y(n,d) = b(n,d)") == "1-3 n");
    CHECK(groups("a(n,d) = x(n,d) y(d,n) = a(n,d)") == "1-2 n d");
    CHECK(groups("a(n,d) = x(n,d) y(n,d) = a(n,d) + x(n,0)") == "1-2 n d");
}

TEST_CASE("an index is common where it stands alone at one place") {
    // Under another name, at another place, beside another index, reduced, outside, as a number.
    CHECK(groups("a(n,d) = x(n,d) y(m,d) = a(m,d)") == "1-2 d");
    CHECK(groups("a(n,d) = x(n,d) y(n,d) = x(n,d) * a(n,0)") == "1-2 n");
    CHECK(groups("a(n,d) = x(n,d) y(n,d) = a(n+1,d) where n in 0:5") == "1-2 d");
    CHECK(groups("a(n,d) = x(n,d) y(n) +=! a(n,d)") == "1-2 n");
    CHECK(groups("a(n,d) = x(n,d) y(n,d) = x(n,d) - a?(n,d+1)") == "1 n d | 2 n d");
    CHECK(groups("a(n,d) = x(n,d) + n y(n,d) = a(n,d)") == "1-2 d");
    CHECK(groups("a(n,d) = x(n,d) y(d,n) = a(d,n)", {{"x", {5, 5}}}) == "1 n d | 2 d n");
    CHECK(groups("a(n) +=! x(n,d) b(d) +=! x(n,d) y(n,d) = a(n) * b(d)") == "1 n | 2-3 d");
    CHECK(groups("a(n,d) = x(n,d) b(n) = a(n,0) y(n,d) = a(n,d) - b(n)") == "1-3 n");
    CHECK(groups("a(n,d) = x(n,d) b(n,d) = x(n,d) * a(0,d) a(n,d) = b(n,d) y(n,d) = a(n,d)") ==
          "1-4 d");
}

}  // namespace
}  // namespace dlprim
