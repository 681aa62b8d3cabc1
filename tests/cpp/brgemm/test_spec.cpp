#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/spec.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostLd = std::int64_t{1} << 24;

// What validated() says about a spec that it refuses; empty when it accepts.
std::string refusal(const BrgemmSpec& spec) {
    try {
        validated(spec);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

bool starts_with(const std::string& text, const std::string& start) {
    return text.rfind(start, 0) == 0;
}

// Specs that differ from each other in one field.
std::vector<BrgemmSpec> neighbours() {
    const BrgemmSpec base = validated({.m = 8, .n = 8, .k = 8, .lda = 9, .ldb = 9, .ldc = 9});
    std::vector<BrgemmSpec> specs = {base};
    const auto add = [&](auto&& change) {
        specs.push_back(base);
        change(specs.back());
    };
    add([](BrgemmSpec& spec) { spec.m = 7; });
    add([](BrgemmSpec& spec) { spec.n = 7; });
    add([](BrgemmSpec& spec) { spec.k = 7; });
    add([](BrgemmSpec& spec) { spec.lda = 10; });
    add([](BrgemmSpec& spec) { spec.ldb = 10; });
    add([](BrgemmSpec& spec) { spec.ldc = 10; });
    add([](BrgemmSpec& spec) { spec.trans_a = true; });
    add([](BrgemmSpec& spec) { spec.beta = 1; });
    add([](BrgemmSpec& spec) { spec.addressing = Addressing::address; });
    add([](BrgemmSpec& spec) { spec.addressing = Addressing::offset; });
    add([](BrgemmSpec& spec) { spec.epilogue.bias = true; });
    add([](BrgemmSpec& spec) { spec.epilogue.activation = Activation::relu; });
    add([](BrgemmSpec& spec) { spec.epilogue.inner = true; });
    add([](BrgemmSpec& spec) { spec.sliding_a = true; });
    add([](BrgemmSpec& spec) { spec.prefetch_a = true; });
    add([](BrgemmSpec& spec) { spec.prefetch_b = true; });
    add([](BrgemmSpec& spec) { spec.prefetch_c = true; });
    add([](BrgemmSpec& spec) { spec.fetch_rows = 12; });
    return specs;
}

TEST_CASE("validated fills in the leading dimensions that are left out") {
    const BrgemmSpec plain = validated({.m = 2, .n = 3, .k = 5});
    CHECK(plain.lda == 5);
    CHECK(plain.ldb == 3);
    CHECK(plain.ldc == 3);
    const BrgemmSpec transposed = validated({.m = 2, .n = 3, .k = 5, .trans_a = true});
    CHECK(transposed.lda == 2);
    CHECK(transposed.a_columns() == 2);
}

TEST_CASE("validated keeps what is given and is idempotent") {
    const BrgemmSpec spec =
        validated({.m = 2, .n = 3, .k = 5, .lda = 7, .ldb = 11, .ldc = 13, .beta = 1});
    CHECK(spec.lda == 7);
    CHECK(spec.ldb == 11);
    CHECK(spec.ldc == 13);
    CHECK(spec.beta == 1);
    CHECK(validated(spec) == spec);
}

TEST_CASE("validated refuses each field out of range and names it") {
    const BrgemmSpec good{.m = 2, .n = 3, .k = 5};
    const auto refused = [&](auto&& change) {
        BrgemmSpec spec = good;
        change(spec);
        return refusal(spec);
    };
    CHECK(refusal(good).empty());
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.m = 0; }), "m=0"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.n = -1; }), "n=-1"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.k = 0; }), "k=0"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.m = kMost + 1; }), "m=2147483648"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.lda = 4; }), "lda=4"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.ldb = 2; }), "ldb=2"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.ldc = 2; }), "ldc=2"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.ldc = -3; }), "ldc=-3"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.lda = kMostLd + 1; }), "lda=16777217"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.k = kMostLd + 1; }), "lda=16777217"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.beta = 2; }), "beta=2"));
    CHECK(starts_with(refused([](BrgemmSpec& spec) { spec.beta = -1; }), "beta=-1"));
}

TEST_CASE("validated accepts the bounds themselves") {
    CHECK(refusal({.m = kMost, .n = 1, .k = 1}).empty());
    CHECK(refusal({.m = 1, .n = kMostLd, .k = kMost, .trans_a = true}).empty());
    CHECK(
        refusal({.m = 1, .n = 1, .k = 1, .lda = kMostLd, .ldb = kMostLd, .ldc = kMostLd}).empty());
}

TEST_CASE("specs that differ in one field differ in ==, hash and name") {
    const std::vector<BrgemmSpec> specs = neighbours();
    std::set<std::string> names;
    std::set<std::size_t> hashes;
    for (const BrgemmSpec& spec : specs) {
        names.insert(to_string(spec));
        hashes.insert(std::hash<BrgemmSpec>{}(spec));
        std::size_t equal = 0;
        for (const BrgemmSpec& other : specs) equal += spec == other ? 1 : 0;
        CHECK(equal == 1);
    }
    CHECK(names.size() == specs.size());
    CHECK(hashes.size() == specs.size());  // a hash may collide, but not between neighbours
}

TEST_CASE("the hash spreads a grid of sizes") {
    std::set<std::size_t> hashes;
    for (std::int64_t m = 1; m <= 20; ++m) {
        for (std::int64_t n = 1; n <= 20; ++n) {
            for (std::int64_t k = 1; k <= 20; ++k) {
                hashes.insert(std::hash<BrgemmSpec>{}(validated({.m = m, .n = n, .k = k})));
            }
        }
    }
    CHECK(hashes.size() > 7900);  // of 8000
}

TEST_CASE("the name says everything about a spec") {
    CHECK(to_string(validated({.m = 64,
                               .n = 32,
                               .k = 16,
                               .trans_a = true,
                               .beta = 1,
                               .addressing = Addressing::offset,
                               .epilogue = {.bias = true, .activation = Activation::relu}})) ==
          "f32_m64n32k16_lda64_ldb32_ldc32_transa_offset_beta1_bias_relu");
}

TEST_CASE("the name ends in what A slides over and what is fetched ahead") {
    BrgemmSpec spec{.m = 8, .n = 4, .k = 6, .lda = 2, .sliding_a = true};
    CHECK(to_string(validated(spec)) == "f32_m8n4k6_lda2_ldb4_ldc4_stride_beta0_sliding");
    spec.prefetch_a = spec.prefetch_c = true;
    CHECK(to_string(validated(spec)) ==
          "f32_m8n4k6_lda2_ldb4_ldc4_stride_beta0_sliding_prefetchac");
}

TEST_CASE("only rows of a sliding A may overlap") {
    BrgemmSpec spec{.m = 8, .n = 4, .k = 6, .lda = 1};
    CHECK(refusal(spec) == "lda=1, expected at least the row length 6");
    spec.sliding_a = true;
    CHECK(refusal(spec).empty());
    CHECK(validated(spec).lda == 1);
    CHECK(span_a(validated(spec)) == (7 * 1 + 6) * 4);
    spec.trans_a = true;
    CHECK(span_a(validated(spec)) == (5 * 1 + 8) * 4);
    spec.lda = -1;
    CHECK(refusal(spec) == "lda=-1, expected at least the row length 1");
    spec.lda = kMostLd + 1;
    CHECK(starts_with(refusal(spec), "lda=16777217"));
}

TEST_CASE("a sliding A has a leading dimension") {
    CHECK(validated({.m = 8, .n = 4, .k = 6, .sliding_a = true}).lda == 6);
}

TEST_CASE("of a relu mask and the two fetches of B there is one at a time") {
    const char* const sentence =
        "two of relu_mask, prefetch_b and fetch_rows: one register would hold both";
    const Epilogue masked{.activation = Activation::relu, .relu_mask = true};
    const BrgemmSpec plain{.m = 2, .n = 3, .k = 5, .prefetch_a = true};
    for (const bool with_b : {false, true}) {
        BrgemmSpec spec = plain;
        spec.epilogue = masked;
        spec.prefetch_b = with_b;
        spec.fetch_rows = with_b ? 0 : 7;
        CHECK(refusal(spec) == sentence);
    }
    BrgemmSpec spec = plain;
    spec.prefetch_b = true;
    spec.fetch_rows = 7;
    CHECK(refusal(spec) == sentence);
    spec.prefetch_b = false;
    spec.fetch_rows = -1;
    CHECK(refusal(spec) == "fetch_rows=-1, expected no negative number");
}

TEST_CASE("addressings and activations survive a round trip through their names") {
    for (const auto addressing : {Addressing::address, Addressing::offset, Addressing::stride}) {
        CHECK(parse_addressing(std::string(name_of(addressing))) == addressing);
    }
    for (const auto activation : {Activation::none, Activation::relu}) {
        CHECK(parse_activation(std::string(name_of(activation))) == activation);
    }
    CHECK_THROWS_AS(parse_addressing("strided"), std::invalid_argument);
    CHECK_THROWS_AS(parse_addressing(""), std::invalid_argument);
    CHECK_THROWS_AS(parse_activation("Relu"), std::invalid_argument);
}

TEST_CASE("spans count the bytes from the first element to the last") {
    const BrgemmSpec spec = validated({.m = 2, .n = 3, .k = 5, .lda = 10, .ldb = 20, .ldc = 30});
    CHECK(span_a(spec) == (1 * 10 + 5) * 4);
    CHECK(span_b(spec) == (4 * 20 + 3) * 4);
    CHECK(span_c(spec) == (1 * 30 + 3) * 4);
    const BrgemmSpec transposed = validated({.m = 2, .n = 3, .k = 5, .lda = 10, .trans_a = true});
    CHECK(span_a(transposed) == (4 * 10 + 2) * 4);
    const BrgemmSpec huge = validated({.m = kMost, .n = 1, .k = 1, .ldc = kMostLd});
    CHECK(span_c(huge) == ((kMost - 1) * kMostLd + 1) * 4);
}

}  // namespace
}  // namespace dlprim
