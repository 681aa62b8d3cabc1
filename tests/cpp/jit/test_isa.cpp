#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "jit/isa.h"

namespace dlprim {
namespace {

constexpr std::array kAll = {Isa::scalar, Isa::avx2,        Isa::avx2_vnni,   Isa::avx2_vnni_int8,
                             Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx};

TEST_CASE("ISA levels survive a round trip through their names") {
    for (const Isa isa : kAll) CHECK(parse_isa(std::string(name_of(isa))) == isa);
}

TEST_CASE("an unknown ISA level is refused with the list of those there are") {
    for (const char* name : {"", "AVX2", "avx", "avx512 ", "sse4.2"}) {
        CHECK_THROWS_AS(parse_isa(name), std::invalid_argument);
    }
    std::string message;
    try {
        parse_isa("sse4.2");
    } catch (const std::invalid_argument& error) {
        message = error.what();
    }
    CHECK(message.find("'sse4.2'") != std::string::npos);
    for (const Isa isa : kAll) CHECK(message.find(name_of(isa)) != std::string::npos);
}

TEST_CASE("levels are ordered and a higher one has no smaller vector file") {
    CHECK(std::is_sorted(kAll.begin(), kAll.end()));
    CHECK(vector_file(Isa::scalar).registers == 0);
    for (std::size_t i = 1; i < kAll.size(); ++i) {
        CHECK(vector_file(kAll[i - 1]).registers <= vector_file(kAll[i]).registers);
        CHECK(vector_file(kAll[i - 1]).bytes <= vector_file(kAll[i]).bytes);
    }
    CHECK(vector_file(Isa::avx2).registers == 16);
    CHECK(vector_file(Isa::avx2).bytes == 32);
    CHECK(vector_file(Isa::avx2_vnni_int8).bytes == 32);
    CHECK(vector_file(Isa::avx512).registers == 32);
    CHECK(vector_file(Isa::avx512).bytes == 64);
}

// The compiler's runtime reads CPUID and XCR0 by code of its own.
TEST_CASE("detection agrees with the compiler's runtime") {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    CHECK((detected_isa() >= Isa::avx2) == avx2);
    CHECK((detected_isa() >= Isa::avx512) == (avx2 && avx512));
    MESSAGE("this machine runs ", std::string(name_of(detected_isa())));
}

TEST_CASE("usable_isa is what is detected, lowered to DLPRIM_MAX_ISA") {
    const char* limit = std::getenv("DLPRIM_MAX_ISA");
    const bool limited = limit != nullptr && *limit != '\0';
    const Isa expected = limited ? std::min(detected_isa(), parse_isa(limit)) : detected_isa();
    CHECK(usable_isa() == usable_isa(expected));
}

// Zen 4 has AVX-512 and neither of them, most CPUs with AVX-VNNI have no AVX-VNNI-INT8.
TEST_CASE("a level between AVX2 and AVX-512 that the CPU lacks is the next lower one it has") {
    for (const Isa limit : kAll) {
        const Isa level = usable_isa(limit);
        CHECK(level <= std::min(limit, usable_isa()));
        CHECK(usable_isa(level) == level);
        const bool may_lack = limit == Isa::avx2_vnni || limit == Isa::avx2_vnni_int8;
        const Isa least = may_lack ? Isa::avx2 : limit;
        CHECK(level >= std::min(least, usable_isa()));
    }
    __builtin_cpu_init();
    const bool has_vnni = __builtin_cpu_supports("avxvnni") && usable_isa() >= Isa::avx2_vnni;
    CHECK((usable_isa(Isa::avx2_vnni) == Isa::avx2_vnni) == has_vnni);
}

}  // namespace
}  // namespace dlprim
