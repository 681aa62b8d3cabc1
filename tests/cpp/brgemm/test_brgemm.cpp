#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/brgemm.h"

namespace dlprim {
namespace {

using Pointer = std::shared_ptr<const Brgemm>;

std::string message_of(const BrgemmSpec& spec, Isa isa) {
    try {
        brgemm(spec, isa);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("equal requests share one kernel, whether the defaults are spelt out or not") {
    const Pointer first = brgemm({.m = 3, .n = 4, .k = 5});
    CHECK(brgemm({.m = 3, .n = 4, .k = 5}) == first);
    CHECK(brgemm({.m = 3, .n = 4, .k = 5, .lda = 5, .ldb = 4, .ldc = 4}) == first);
    CHECK(brgemm({.m = 3, .n = 4, .k = 5, .ldc = 6}) != first);
    CHECK(brgemm({.m = 3, .n = 4, .k = 5}, usable_isa()) == first);
}

TEST_CASE("a kernel says what it is") {
    const Pointer kernel = brgemm({.m = 3, .n = 4, .k = 5, .beta = 1});
    CHECK(kernel->spec() == validated({.m = 3, .n = 4, .k = 5, .beta = 1}));
    CHECK(kernel->isa() == kernel_isa(kernel->spec(), usable_isa()));
    CHECK(kernel->name() == "brgemm_" + std::string(name_of(kernel->isa())) +
                                "_f32_m3n4k5_lda5_ldb4_ldc4_stride_beta1");
    CHECK(kernel->flops(7) == 2 * 3 * 4 * 5 * 7);
    const bool generated = kernel->isa() != Isa::scalar;
    CHECK(kernel->code().empty() != generated);
    CHECK(kernel->bytes() >= static_cast<std::int64_t>(kernel->code().size()));
}

TEST_CASE("every level up to the usable one may be asked for") {
    const BrgemmSpec spec{.m = 3, .n = 4, .k = 5};
    CHECK(brgemm(spec, Isa::scalar)->isa() == Isa::scalar);
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx}) {
        if (isa > usable_isa()) {
            MESSAGE("skipped, not usable here: ", std::string(name_of(isa)));
            continue;
        }
        CHECK(brgemm(spec, isa)->isa() == kernel_isa(spec, isa));
    }
}

TEST_CASE("levels for which a kernel is the same share it") {
    if (usable_isa() <= Isa::avx512) return;
    const BrgemmSpec spec{.m = 3, .n = 4, .k = 5};
    CHECK(brgemm(spec, usable_isa()) == brgemm(spec, Isa::avx512));
}

TEST_CASE("a level beyond the machine is refused by name") {
    if (usable_isa() == Isa::amx) return;
    const std::string message = message_of({.m = 3, .n = 4, .k = 5}, Isa::amx);
    CHECK(message.find("'amx'") != std::string::npos);
    CHECK(message.find(name_of(usable_isa())) != std::string::npos);
}

TEST_CASE("a spec out of range is refused and not cached") {
    kernel_cache_clear();
    CHECK(message_of({.m = 0, .n = 4, .k = 5}, usable_isa()).rfind("m=0", 0) == 0);
    CHECK(message_of({.m = 1, .n = 4, .k = 5, .ldb = 3}, usable_isa()).rfind("ldb=3", 0) == 0);
    CHECK(kernel_cache_info().entries == 0);
}

TEST_CASE("the cache counts kernels and their pages") {
    kernel_cache_clear();
    const Pointer first = brgemm({.m = 3, .n = 4, .k = 5});
    const Pointer second = brgemm({.m = 3, .n = 4, .k = 6});
    brgemm({.m = 3, .n = 4, .k = 5});
    const CacheInfo info = kernel_cache_info();
    CHECK(info.entries == 2);
    CHECK(info.misses == 2);
    CHECK(info.hits == 1);
    CHECK(info.bytes == first->bytes() + second->bytes());
    CHECK(info.max_entries > 1000);
    CHECK(info.max_bytes > 1 << 20);
}

// The tiles of a plan, whatever their numbers.
std::string tiles_of(const BrgemmPlan& plan) {
    std::string text;
    for (const ColumnGroup& columns : plan.columns) {
        text += std::to_string(columns.vectors) + (columns.masked ? " masked:" : ":");
        for (const RowGroup& rows : columns.rows) {
            const Tile& it = rows.tile;
            for (const int number : {it.rows, it.vectors, it.sets, it.quad_rows, rows.unroll}) {
                text += " " + std::to_string(number);
            }
        }
    }
    return text;
}

// Heights of a width, widths of whole vectors and depths: each meets all remainders of its tiles
// soon, and from then on code is generated for tiles alone that were not met: where prices of two
// cuts are close, great heights take the other one.
TEST_CASE("kernels that differ in how often their loops go round share their code") {
    if (usable_isa() == Isa::scalar) return;
    const Isa isa = std::min(usable_isa(), Isa::avx512);
    using Made = BrgemmSpec (*)(std::int64_t);
    const std::array<Made, 3> streams = {
        [](std::int64_t it) { return BrgemmSpec{.m = it, .n = 64, .k = 64}; },
        [](std::int64_t it) {
            return BrgemmSpec{.m = 30, .n = 16 * it, .k = 64, .ldb = 8192, .ldc = 8192};
        },
        [](std::int64_t it) { return BrgemmSpec{.m = 30, .n = 64, .k = 8 * it, .lda = 4096}; },
    };
    for (const Made spec : streams) {
        kernel_cache_clear();
        std::set<std::string> met;
        for (std::int64_t it = 1; it <= 240; ++it)
            met.insert(tiles_of(brgemm(spec(it), isa)->plan()));
        const std::int64_t generated = kernel_code_info().misses;
        CHECK(generated <= 60);
        std::int64_t others = 0;
        for (std::int64_t it = 241; it <= 480; ++it) {
            others += met.insert(tiles_of(brgemm(spec(it), isa)->plan())).second ? 1 : 0;
        }
        CHECK(kernel_code_info().misses == generated + others);
        CHECK(kernel_cache_info().misses == 480);
    }
}

TEST_CASE("eight threads that ask for the same kernels get the same ones") {
    constexpr std::size_t specs = 200;
    kernel_cache_clear();
    std::array<std::vector<Pointer>, 8> got;
    {
        std::vector<std::jthread> threads;
        for (auto& kernels : got) {
            threads.emplace_back([&kernels] {
                for (std::size_t i = 0; i < specs; ++i) {
                    const auto n = static_cast<std::int64_t>(i + 1);
                    kernels.push_back(brgemm({.m = 3, .n = n, .k = 5}));
                }
            });
        }
    }
    for (const auto& kernels : got) CHECK(kernels == got[0]);
    CHECK(std::set<Pointer>(got[0].begin(), got[0].end()).size() == specs);
    CHECK(kernel_cache_info().misses == specs);
    CHECK(kernel_cache_info().hits == specs * 7);
}

TEST_CASE("a kernel outlives the cache's memory of it") {
    const Pointer kernel = brgemm({.m = 1, .n = 1, .k = 2});
    kernel_cache_clear();
    const std::array<float, 2> a = {2, 3};
    const std::array<float, 2> b = {5, 7};
    float c = 0;
    (*kernel)({.a = a.data(), .b = b.data(), .c = &c, .batch = 1});
    CHECK(c == 31);
}

}  // namespace
}  // namespace dlprim
