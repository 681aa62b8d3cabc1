#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "definition_problem.h"
#include "draw.h"
#include "primitives/formulas/compiled_definition.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::DefinitionProblem;
using testing::Draw;
using Names = std::vector<std::string>;

const std::string kHead = "def f(float(N,M,D) x, float(N,M,D) v, float(D) w, float(N,M) r) -> (";

const std::string& one_of(Draw& draw, const Names& names) {
    return names[static_cast<std::size_t>(draw.from(0, std::ssize(names) - 1))];
}

// Random statements: values of all elements, sums along rows, and single values of rows, of what
// was there before; some write again what was written.
std::string drawn_program(Draw& draw) {
    Names full = {"x", "v"}, single = {"r"}, own_full, own_single, results;
    std::string body;
    const std::int64_t count = draw.from(2, 6);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t kind = i + 1 == count ? 0 : draw.from(0, 4);
        const bool is_full = kind < 2, is_sum = kind == 2 || kind == 3;
        const std::string column = draw.once_in(4) ? "k" : "d";
        const std::string at_single = "(n,m)", at_full = "(n,m," + column + ")";
        const std::string first =
            kind == 4 ? one_of(draw, single) + at_single : one_of(draw, full) + at_full;
        std::string second = one_of(draw, single) + at_single;
        if (kind != 4 && draw.once_in(2)) second = one_of(draw, full) + at_full;
        if (kind != 4 && draw.once_in(6)) second = "w(" + column + ")";
        if (kind != 4 && draw.once_in(6)) second = "v(0,m," + column + ")";
        const Names forms = {first + " * " + second,
                             first + " - " + second,
                             "tanh(" + first + ")",
                             "fmax(" + first + ", " + second + ")",
                             first + " / (1 + fabs(" + second + "))",
                             "exp(-fabs(" + first + "))"};
        Names& own = is_full ? own_full : own_single;
        std::string name = "t" + std::to_string(i);
        if (!is_sum && !own.empty() && draw.once_in(4)) {
            name = one_of(draw, own);
        } else {
            own.push_back(name);
            (is_full ? full : single).push_back(name);
        }
        const char* const how = kind == 2 ? " +=! 0.125 * (" : kind == 3 ? " max=! (" : " = (";
        body += "    " + name + (is_full ? at_full : at_single) + how + one_of(draw, forms) + ")\n";
        if (i + 1 == count || draw.once_in(4)) {
            if (std::find(results.begin(), results.end(), name) == results.end())
                results.push_back(name);
        }
    }
    std::string returned;
    for (const std::string& it : results) returned += (returned.empty() ? "" : ", ") + it;
    return kHead + returned + ") {\n" + body + "}";
}

void check(const DefinitionProblem& problem, const CompiledDefinition& compiled) {
    CAPTURE(problem.definition.text);
    CAPTURE(compiled.described());
    REQUIRE(problem.error_of(compiled) < 2e-5);
}

const Constants kExtents = {{"N", 5}, {"M", 4}, {"D", 37}};

bool is_fused(const CompiledDefinition& compiled) {
    return compiled.described().find("as one program") != std::string::npos;
}

TEST_CASE("random statements on rows are the same as one program, apart, and in pieces") {
    Draw draw(31);
    int fused = 0;
    for (int round = 0; round < 600; ++round) {
        const Constants extents = {
            {"N", draw.from(1, 9)}, {"M", draw.from(1, 9)}, {"D", draw.extent()}};
        DefinitionProblem it(draw, drawn_program(draw), extents, 16);
        if (draw.once_in(3)) it.arrays.machine.l2 = 1 << 10;
        const CompiledDefinition compiled(it.definition, it.arrays);
        check(it, compiled);
        if (!is_fused(compiled)) continue;
        ++fused;
        const auto alone = it.results_of(compiled);
        set_num_threads(3);
        REQUIRE(it.results_of(compiled) == alone);
        set_num_threads(1);
        for (int i = 1; i < 6; ++i) it.arrays.choices["rows " + std::to_string(i)] = "apart";
        const CompiledDefinition apart(it.definition, it.arrays);
        CHECK(!is_fused(apart));
        check(it, apart);
    }
    CHECK(fused > 300);
}

std::string described(const std::string& body, const std::string& results = "y") {
    Draw draw(7);
    const DefinitionProblem it(draw, kHead + results + ") {\n" + body + "}", kExtents, 16);
    const CompiledDefinition compiled(it.definition, it.arrays);
    check(it, compiled);
    return compiled.described();
}

TEST_CASE("what is read elsewhere, or while it is overwritten, is no value of one program") {
    // Of a neighbour.
    const std::string next =
        described("a(n,m,d) = 2 * x(n,m,d)\n y(n,m,d) = a(n,m,d) + a(n,m,0)\n");
    CHECK(next.find("as one program") == std::string::npos);
    // A sum of the other rows.
    const std::string down = described("a(n,d) +=! x(n,m,d)\n y(n,m,d) = x(n,m,d) - a(n,d)\n");
    CHECK(down.find("as one program") == std::string::npos);
    // x(n,m,d) of the first row of all.
    const std::string early =
        described("a(n,m,d) = x(n,m,d) * v(n,m,d)\n y(n,m,d) = a(n,m,d) - x(n,0,d)\n");
    CHECK(early.find("statements 1 and 2: ") != std::string::npos);
}

TEST_CASE("what is written many times over is as long as what is computed of it") {
    std::string value = "x(n,m,d)";
    for (int i = 0; i < 8; ++i) value = "(" + value + " * " + value + " + 0.25) / 2";
    const std::string found = described("y(n,m,d) = " + value + "\n s(d) +=! y(n,m,d)\n", "y, s");
    CHECK(found.find("statements 1 and 2: ") == 0);
    // Of as many values as it has words.
    value = "x(n,m,d)";
    for (int i = 0; i < 64; ++i)
        value = "exp(-abs(" + value + ") * 0." + std::to_string(i + 1) + ")";
    const std::string longer = described("y(n,m,d) = " + value + "\n s(d) +=! y(n,m,d)\n", "y, s");
    CHECK(longer.find("as one program") == std::string::npos);
}

TEST_CASE("two reads of an array that pieces move apart are two") {
    Draw draw(9);
    const Constants extents = {{"N", 7}, {"M", 33}, {"D", 24}};
    const std::string body =
        "s(n,m) +=! x(n,m,d) * v(n,0,d)\n s(n,m) *=! 1 + x(n,m,d) / 64\n"
        "t(n,m,d) = x(n,m,d) - x(0,m,d)\n y(n,m,d) = s(n,m) * t(n,m,d)\n";
    for (const int size : {1 << 14, 1 << 15}) {
        DefinitionProblem it(draw, kHead + "y) {\n" + body + "}", extents, 16);
        it.arrays.machine.l2 = size;
        const CompiledDefinition compiled(it.definition, it.arrays);
        CHECK(is_fused(compiled));
        CHECK(compiled.described().find("for n in 0:7 m in 0:33 by ") == 0);
        check(it, compiled);
    }
}

TEST_CASE("what nothing else reads is in no array") {
    Draw draw(8);
    const std::string body =
        "a(n,m,d) = exp(x(n,m,d))\n s(n,m) +=! a(n,m,d)\n"
        "y(n,m,d) = a(n,m,d) / s(n,m)\n";
    for (const std::string results : {"y", "y, a", "s, y"}) {
        const DefinitionProblem it(draw, kHead + results + ") {\n" + body + "}", kExtents, 16);
        const CompiledDefinition compiled(it.definition, it.arrays);
        CHECK(compiled.described().find("statements 1 to 3: ") == 0);
        CHECK(compiled.scratch_bytes() == 0);
        check(it, compiled);
    }
}

}  // namespace
}  // namespace dlprim
