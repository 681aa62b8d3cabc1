#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "definition_problem.h"
#include "draw.h"
#include "lang/parser.h"
#include "primitives/formulas/compiled_definition.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::DefinitionProblem;
using testing::Draw;

struct Layer {
    std::string text;
    std::string sizes;       // of its parameters
    bool has_pieces = true;  // on a machine with small caches
};

const std::vector<Layer> kLayers = {
    {"def softmax(float(N,D) x) -> (y) {\n"
     "    highest(n) max=! x(n,d)\n"
     "    power(n,d) = exp(x(n,d) - highest(n))\n"
     "    total(n) +=! power(n,d)\n"
     "    y(n,d) = power(n,d) / total(n) }",
     "ND", false},
    {"def attention(float(B,H,Q,D) q, float(B,H,K,D) k, float(B,H,K,D) v) -> (o) {\n"
     "    s(b,h,i,j) +=! 0.125 * q(b,h,i,d) * k(b,h,j,d)\n"
     "    highest(b,h,i) max=! s(b,h,i,j)\n"
     "    s(b,h,i,j) = exp(s(b,h,i,j) - highest(b,h,i))\n"
     "    total(b,h,i) +=! s(b,h,i,j)\n"
     "    o(b,h,i,d) +=! s(b,h,i,j) * v(b,h,j,d)\n"
     "    o(b,h,i,d) = o(b,h,i,d) / total(b,h,i) }",
     "BHQDK"},
    {"def norm(float(N,G,D,H) x, float(G,D) gamma) -> (y) {\n"
     "    sum(n,g) +=! x(n,g,d,h)\n"
     "    squares(n,g) +=! x(n,g,d,h) * x(n,g,d,h)\n"
     "    mean(n,g) = sum(n,g) / (D*H)\n"
     "    scale(n,g) = rsqrt(squares(n,g) / (D*H) - mean(n,g) * mean(n,g) + 1)\n"
     "    y(n,g,d,h) = gamma(g,d) * (x(n,g,d,h) - mean(n,g)) * scale(n,g) }",
     "NGDH"},
    {"def separable(float(N,C,H,W) x, float(C,R,S) d, float(K,C) p) -> (y) {\n"
     "    m(n,c,h,w) +=! x?(n,c,h+r-1,w+s-1) * d(c,r,s) where h in 0:H, w in 0:W\n"
     "    m(n,c,h,w) = fmax(m(n,c,h,w), 0)\n"
     "    y(n,k,h,w) +=! m(n,c,h,w) * p(k,c)\n"
     "    y(n,k,h,w) = fmax(y(n,k,h,w), 0) }",
     "NCHWRSK"},
    {"def chain(float(N,R) x, float(R,S) p, float(S,C) q) -> (y, last) {\n"
     "    z(n,c) +=! x(n,a) * p(a,b) * q(b,c)\n"
     "    y(n,c) = tanh(z(n,c)) + z(n,0)\n"
     "    last(c) +=! z(n,c) }",
     "NRSC"},
    // A place that is no index alone keeps its neighbours in the array.
    {"def neighbours(float(N,D) x) -> (y) {\n"
     "    a(n,d) = 2 * x(n,d)\n"
     "    b(n,d) = a(n,d) + 1\n"
     "    y(n,d) = b(n,d) - b?(n-1,d) + a?(n,d+1) }",
     "ND", false},
    // An index that is a number has to count from where its piece begins.
    {"def ramp(float(N,D) x) -> (y) {\n"
     "    a(n,d) = x(n,d) + n\n"
     "    y(n,d) = (n > 3 ? a(n,d) : 0) + a(n,d) }",
     "ND"},
    {"def triangle(float(N,D) x) -> (y) {\n"
     "    a(n,d) = x(n,d) + n\n"
     "    y(n,d) = (n > d ? a(n,d) : 0) + a(n,d) }",
     "ND", false},
    // Of a diagonal the whole row has to be there.
    {"def diagonal(float(N,D) x) -> (y) {\n"
     "    a(n,p,d) = x(n,d) + x(p,d) where p in 0:N\n"
     "    y(n,d) = a(n,n,d) }",
     "ND"},
    {"def swapped(float(N,D) x) -> (y) {\n"
     "    a(n,d) = exp(x(n,d))\n"
     "    y(n,d) = a(n,d) + a(n,0)\n"
     "    a(n,d) = y(n,d) * 2\n"
     "    y(n,d) = a(n,d) - x(n,d) }",
     "ND"},
};

DefinitionProblem drawn(Draw& draw, const Layer& layer) {
    Constants extents;
    for (const char size : layer.sizes) extents[std::string(1, size)] = draw.from(1, 23);
    for (const char* size : {"R", "S"}) {
        if (extents.contains(size)) extents[size] = 3;
    }
    DefinitionProblem made(draw, layer.text, extents, 8);
    made.arrays.machine.l2 = double(1 << draw.from(8, 14));
    return made;
}

TEST_CASE("statements in pieces give what they give one after the other") {
    Draw draw(23);
    for (const Layer& layer : kLayers) {
        int with_pieces = 0;
        for (int round = 0; round < 30; ++round) {
            const DefinitionProblem it = drawn(draw, layer);
            const CompiledDefinition compiled(it.definition, it.arrays);
            CAPTURE(layer.text);
            CAPTURE(compiled.described());
            with_pieces += compiled.described().find("for ") != std::string::npos ? 1 : 0;
            set_num_threads(1);
            REQUIRE(it.error_of(compiled) < 2e-5);
            const auto alone = it.results_of(compiled);
            set_num_threads(3);
            REQUIRE(it.results_of(compiled) == alone);
            set_num_threads(1);
        }
        CAPTURE(layer.text);
        CHECK((with_pieces > 0) == layer.has_pieces);
    }
}

TEST_CASE("what is between statements is rounded to bytes in results alone") {
    const Definition definition = parse_definitions(
                                      "def f(uint8(N,D) x, int8(D) z) -> (y) {\n"
                                      "    a(n,d) = 0.125 * x(n,d)\n"
                                      "    s(n) +=! a(n,d) * z(d)\n"
                                      "    y(n,d) = rint(8 * a(n,d) - s(n)) + 1 }")
                                      .front();
    constexpr std::int64_t rows = 300, columns = 40;
    std::vector<std::uint8_t> x(rows * columns), found(x.size()), expected;
    std::vector<std::int8_t> z(columns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = static_cast<std::int8_t>(int(i % 7) - 3);
    for (std::size_t n = 0; n < rows; ++n) {
        float sum = 0;
        for (std::size_t d = 0; d < columns; ++d) sum += 0.125F * x[n * columns + d] * z[d];
        for (std::size_t d = 0; d < columns; ++d) {
            const float value = std::nearbyint(x[n * columns + d] - sum) + 1;
            expected.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F)));
        }
    }
    for (const int cache : {1 << 10, 1 << 24}) {
        CompiledDefinition::Arrays arrays{.result_type = DType::u8};
        arrays.parameters = {dense_view("x", DType::u8, {rows, columns}),
                             dense_view("z", DType::s8, {columns})};
        arrays.machine.l2 = cache;
        const CompiledDefinition compiled(definition, arrays);
        CAPTURE(compiled.described());
        compiled.run(std::array<const void*, 2>{x.data(), z.data()},
                     std::array<void*, 1>{found.data()});
        CHECK(found == expected);
    }
}

}  // namespace
}  // namespace dlprim
