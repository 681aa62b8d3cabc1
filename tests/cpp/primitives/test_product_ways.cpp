#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "bound_product.h"
#include "primitives/formulas/compiled_definition.h"
#include "primitives/mapping/product_mapping.h"
#include "primitives/mapping/product_walk.h"
#include "primitives/mapping/product_ways.h"

namespace dlprim {
namespace {

using testing::bound_of;
using testing::product_of;

std::string letters(const std::vector<ProductIndex>& indices, const StridedProduct& product) {
    std::string text;
    for (const ProductIndex& it : indices) text += names_of(it.members, product);
    return text;
}

// "rows | columns | sums | outside"
std::string classes(const StridedProduct& it) {
    return letters(it.rows, it) + " | " + letters(it.columns, it) + " | " + letters(it.sums, it) +
           " | " + letters(it.outer, it);
}

StridedProduct convolution(const std::string& text, std::vector<Shape> shapes) {
    return product_of(text, shapes, {}, DType::f32);
}

TEST_CASE("indices fall into the classes of a product by what moves along them") {
    CHECK(classes(convolution("y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)",
                              {{2, 3, 8, 8}, {4, 3, 3, 3}})) == "npq | k | crs | ");
    CHECK(classes(convolution("y(n,g,k,p,q) +=! x(n,g,c,p+r,q+s) * w(g,k,c,r,s)",
                              {{2, 3, 4, 8, 8}, {3, 5, 4, 3, 3}})) == "npq | k | crs | g");
    CHECK(classes(convolution("s(b,h,i,j) +=! q(b,h,i,d) * k(b,h,j,d)",
                              {{2, 3, 8, 4}, {2, 3, 9, 4}})) == "i | j | d | bh");
    CHECK(classes(convolution("y(n,k,p) +=! x(n,c,p+8*s) * w(k,c,s)", {{2, 3, 60}, {4, 3, 5}})) ==
          "np | k | cs | ");
}

TEST_CASE("taps slide along pixels, but not where steps leave nothing to share") {
    const auto pairs = [](const std::string& place, std::int64_t extent) {
        const StridedProduct it = product_of("y(k,p) +=! x(c," + place + ") * w(k,c,s)",
                                             {{3, extent}, {4, 3, 2}}, {}, DType::f32);
        int count = 0;
        for (const ProductIndex& sum : it.sums) {
            for (const ProductIndex& row : it.rows) {
                count += slides(sum, row, &ProductIndex::a) ? 1 : 0;
            }
            for (const ProductIndex& column : it.columns) {
                count += slides(sum, column, &ProductIndex::b) ? 1 : 0;
            }
        }
        return count;
    };
    CHECK(pairs("p+s", 9) == 1);
    CHECK(pairs("p+4*s", 30) == 1);
    CHECK(pairs("2*p+s", 20) == 0);
    CHECK(pairs("2*p+2*s", 20) == 1);
    CHECK(pairs("p+20*s", 25) == 0);
}

TEST_CASE("a reason says why there is no product of matrices") {
    const auto reason = [](const std::string& text, const std::vector<Shape>& shapes) {
        return reason_for_none(bound_of(text, shapes, {}, DType::f32));
    };
    CHECK(reason("y(n,k) +=! x(n,c) * w(k,c)", {{4, 5}, {6, 5}}).empty());
    CHECK(reason("y(n,c,p) +=! x(n,c,p+r) * d(c,r)", {{2, 3, 9}, {3, 3}}) ==
          "no index moves the result and the second factor alone, so that matrices meet vectors");
    CHECK(reason("y(n) max=! x(n,c)", {{4, 5}}) == "it is no sum of products");
    CHECK(reason("y(n) +=! x(n,c)", {{4, 5}}) == "it multiplies no two arrays");
    CHECK(reason("y(i,j) = x(i) * w(j)", {{4}, {5}}) == "no index of both factors is summed over");
    CHECK(reason("y(i) +=! x(i,j) * w(i,j)", {{4, 5}, {4, 5}}) ==
          "no index moves one factor and the result");
    CHECK(reason("y(i,k) +=! x(i,j) * w(k)", {{4, 5}, {6}}) ==
          "an array moves along an index alone, or their types do not go together");
}

bool is_way(const ProductWay& way, const StridedProduct& it, const std::string& m,
            const std::string& n, const std::string& k) {
    return names_of(way.m.members, it) == m && names_of(way.n.members, it) == n &&
           names_of(way.k.members, it) == k;
}

TEST_CASE("every index of a class may be the kernel's") {
    const StridedProduct it = convolution("y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)",
                                          {{2, 16, 12, 14}, {32, 16, 3, 3}});
    const auto ways = product_ways(it, Machine());
    CHECK(ways.size() > 12);
    CHECK(ways.size() < 300);
    const auto has = [&](const char* m, const char* n, const char* k) {
        return std::any_of(ways.begin(), ways.end(),
                           [&](const ProductWay& way) { return is_way(way, it, m, n, k); });
    };
    CHECK(has("n", "k", "s"));
    CHECK(has("p", "k", "s"));
    CHECK(has("q", "k", "r"));
    CHECK(has("q", "k", "c"));
    CHECK(has("n p q", "k", "c r s"));
    CHECK(has("k", "q", "c"));
    CHECK(has("k", "p q", "c r s"));
    for (std::size_t i = 1; i < ways.size(); ++i) {
        CHECK(ways[i - 1].cycles <= ways[i].cycles);
        CHECK(to_string(ways[i - 1], it) != to_string(ways[i], it));
    }
}

TEST_CASE("of many indices no packing is left out, and few hundred ways are tried") {
    const StridedProduct it = product_of(
        "y(a,i,b,j,c,k,d,l,e,m,f,n) +=! x(s,a,t,b,u,c,v,d,w,e,z,f) * h(i,s,j,t,k,u,l,v,m,w,n,z)",
        {Shape(12, 2), Shape(12, 2)}, {}, DType::f32);
    const auto ways = product_ways(it, Machine());
    CHECK(ways.size() < 512);
    CHECK(std::any_of(ways.begin(), ways.end(), [](const ProductWay& way) {
        return way.packs_a && way.packs_b && way.packs_c;
    }));
}

TEST_CASE("taps are entries of the batch, and rows slide, where nothing is packed") {
    const StridedProduct it =
        convolution("y(n,p,k) +=! x(n,p+8*s,c) * w(s,c,k)", {{1, 460, 15}, {51, 15, 16}});
    const auto ways = product_ways(it, Machine());
    const auto in_place = std::find_if(ways.begin(), ways.end(), [](const ProductWay& way) {
        return !way.exchanges && !way.packs_a && !way.packs_b && !way.packs_c;
    });
    REQUIRE(in_place != ways.end());
    CHECK(to_string(*in_place, it) ==
          "A in place, B in place, C in place; m: p, n: k, k: c, batch: s");
    const ProductMapping mapping = mapping_of(it, *in_place, Machine());
    CHECK(mapping.contraction.classes[0][0].entries_a.size() == 51);
    CHECK(mapping.contraction.classes[0][0].entries_a[1] == 8 * 15 * 4);
    CHECK(mapping.contraction.classes[0][0].lda == 15);
}

// As ways were chosen before each index was tried: columns that are neighbours in C, the longest
// row, the sum that A has as neighbours, or the longest.
bool is_by_rule(const ProductWay& way, const StridedProduct& it) {
    const auto& rows = way.exchanges ? it.columns : it.rows;
    return std::all_of(rows.begin(), rows.end(), [&](const ProductIndex& index) {
        const bool is_it = way.m.letter == index.letter;
        return is_it || std::any_of(rows.begin(), rows.end(), [&](const ProductIndex& other) {
                   return other.letter == way.m.letter && other.extent >= index.extent;
               });
    });
}

TEST_CASE("the best of all is never worse than the best with the longest rows") {
    const std::vector<StridedProduct> products = {
        convolution("y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)", {{2, 16, 12, 14}, {8, 16, 3, 3}}),
        convolution("y(f,d,a,b) +=! x(e,c,b) * w(a,e,f,d,c)", {{12, 8, 3}, {12, 12, 4, 16, 8}}),
        convolution("y(a,g,b) +=! x(c,b,e,d) * w(c,d,e,g,a)", {{6, 24, 2, 32}, {6, 32, 2, 6, 2}}),
        convolution("y(n,k) +=! x(n,c) * w(k,c)", {{64, 300}, {200, 300}}),
    };
    for (const StridedProduct& it : products) {
        const auto ways = product_ways(it, Machine());
        REQUIRE(!ways.empty());
        const auto ruled = std::find_if(ways.begin(), ways.end(),
                                        [&](const ProductWay& way) { return is_by_rule(way, it); });
        REQUIRE(ruled != ways.end());
        CHECK(ways.front().cycles <= ruled->cycles);
    }
}

TEST_CASE("columns that are few neighbours of the result are left for the many behind them") {
    // 2 neighbours in y: a vector of them would use 2 of 16 lanes.
    const StridedProduct it = convolution("y(b,a) +=! x(c,b) * w(c,g,a)", {{48, 24}, {48, 1, 2}});
    const StridedProduct many =
        convolution("y(m,g,a) +=! x(c,m) * w(c,a,g)", {{400, 240}, {400, 2, 64}});
    CHECK(!product_ways(it, Machine()).empty());
    const auto ways = product_ways(many, Machine());
    CHECK(names_of((ways.front().exchanges ? ways.front().m : ways.front().n).members, many) !=
          "a");
}

std::string described(const std::string& text, const std::vector<Shape>& shapes,
                      const Explained& asked = {}) {
    const Definition definition = parse_definitions(text).front();
    CompiledDefinition::Arrays arrays;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::string& name = definition.parameters.at(i).name;
        arrays.parameters.push_back(dense_view(name, DType::f32, shapes[i]));
    }
    return CompiledDefinition(definition, arrays).described(asked);
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

TEST_CASE("a convolution in two halves has its product in one of them") {
    const std::string text = described(
        "def f(float(N,C,H,W) x, float(C,R,S) d, float(K,C) p) -> (y) {\n"
        "    m(n,c,h,w) +=! x(n,c,h+r,w+s) * d(c,r,s)\n"
        "    y(n,k,h,w) +=! m(n,c,h,w) * p(k,c) }",
        {{2, 32, 16, 16}, {32, 3, 3}, {48, 32}});
    CHECK(text.find("statement 1: no product of matrices here, as no index moves the result and "
                    "the second factor alone, so that matrices meet vectors: rows") !=
          std::string::npos);
    CHECK(text.find("statement 2: product of matrices by ") != std::string::npos);
    CHECK(text.find("rows n (2), h (14), w (14); columns k (48); sums c (32)") !=
          std::string::npos);
}

TEST_CASE("groups are outside, two products are in attention, three in a Kronecker product") {
    const std::string grouped = described(
        "def f(float(N,G,C,W) x, float(G,K,C,S) w) -> (y) {\n"
        "    y(n,g,k,p) +=! x(n,g,c,p+s) * w(g,k,c,s) }",
        {{2, 4, 8, 40}, {4, 16, 8, 3}});
    CHECK(grouped.find("outside g (4)") != std::string::npos);
    CHECK(grouped.find("s slides along p (A is Toeplitz)") != std::string::npos);
    const std::string attention = described(
        "def f(float(H,Q,D) q, float(H,K,D) k, float(H,K,D) v) -> (o) {\n"
        "    s(h,i,j) +=! 0.125 * q(h,i,d) * k(h,j,d)\n"
        "    m(h,i) max=! s(h,i,j)\n"
        "    s(h,i,j) = exp(s(h,i,j) - m(h,i))\n"
        "    t(h,i) +=! s(h,i,j)\n"
        "    o(h,i,d) +=! s(h,i,j) * v(h,j,d)\n"
        "    o(h,i,d) = o(h,i,d) / t(h,i) }",
        {{2, 40, 32}, {2, 50, 32}, {2, 50, 32}});
    CHECK(count(attention, ": product of matrices by ") == 2);
    CHECK(count(attention, "statements 2 to 4: no products of matrices here: rows") == 1);
    CHECK(count(attention, ": no product of matrices here, as ") == 1);
    const std::string kronecker = described(
        "def f(float(M,A,B,C) x, float(I,A) u, float(J,B) v, float(K,C) w) -> (y) {\n"
        "    y(m,i,j,k) +=! x(m,a,b,c) * u(i,a) * v(j,b) * w(k,c) }",
        {{20, 16, 16, 16}, {32, 16}, {32, 16}, {32, 16}});
    CHECK(count(kronecker, ": product of matrices by ") == 3);
}

TEST_CASE("the best few ways are said, all where they are asked for, one of them chosen") {
    const std::string text =
        "def f(float(N,C,H,W) x, float(K,C,R,S) w) -> (y) {\n"
        "    y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s) }";
    const std::vector<Shape> shapes = {{2, 16, 12, 14}, {32, 16, 3, 3}};
    const std::string few = described(text, shapes), all = described(text, shapes, {.all = true});
    CHECK(count(few, " cycles expected") == 5);
    CHECK(count(few, " cycles expected, chosen: ") == 1);
    CHECK(count(few, " more\n") == 1);
    CHECK(count(all, " cycles expected, chosen: ") == 1);
    CHECK(count(all, " cycles expected") > 12);
    CHECK(count(all, " more\n") == 0);
    const std::string tiles = described(text, shapes, {.instruction = "tdpbf16ps"});
    CHECK(tiles.starts_with("statement 1: product of matrices on tdpbf16ps: c(i,j) += "));
    CHECK(count(tiles, " instructions, ") == 4);
    CHECK_THROWS_AS(described(text, shapes, {.instruction = "magic"}), std::invalid_argument);
}

TEST_CASE("a matrix that streams by is read in as many rows side by side as a machine follows") {
    const auto units = [](std::int64_t rows, const Machine& machine) {
        const StridedProduct it =
            product_of("y(n,k) +=! x(n,c) * w(c,k)", {{rows, 4096}, {4096, 4096}}, {}, DType::f32);
        ProductWalk walk(it, false, machine);
        ProductWay way{.n = {.letter = it.columns.front().letter},
                       .k = {.letter = it.sums.front().letter}};
        if (!it.rows.empty()) way.m.letter = it.rows.front().letter;
        REQUIRE(walk.follow(way));
        CHECK(walk.streams());
        return std::pair(walk.depth_unit(), walk.column_unit());
    };
    const Machine zen4{.rows_side_by_side = 8};
    CHECK(units(1, Machine()) == std::pair<std::int64_t, std::int64_t>(16, 256));
    CHECK(units(1, zen4) == std::pair<std::int64_t, std::int64_t>(4, 512));
    CHECK(units(2, zen4) == std::pair<std::int64_t, std::int64_t>(4, 512));
    const Machine two_cores{.cores = 2, .l1 = 32768, .rows_side_by_side = 8};
    CHECK(units(1, two_cores) == std::pair<std::int64_t, std::int64_t>(4, 2048));
    CHECK(units(2, two_cores) == std::pair<std::int64_t, std::int64_t>(4, 2048));
    CHECK(units(8, zen4) == std::pair<std::int64_t, std::int64_t>(8, 256));
    CHECK(units(32, zen4) == std::pair<std::int64_t, std::int64_t>(16, 256));
}

}  // namespace
}  // namespace dlprim
