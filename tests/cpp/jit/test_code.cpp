#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "jit/cache.h"
#include "jit/code.h"
#include "kernel_problem.h"

namespace dlprim {
namespace {

using Answer = int();

constexpr std::array<std::uint8_t, 6> kReturn42 = {0xB8, 42, 0, 0, 0, 0xC3};  // mov eax, 42; ret
constexpr std::array<std::uint8_t, 6> kReturn43 = {0xB8, 43, 0, 0, 0, 0xC3};

struct Mapping {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::string access;  // as in "r-xp"
};

std::vector<Mapping> mappings() {
    std::vector<Mapping> all;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        Mapping mapping;
        char dash = 0;
        fields >> std::hex >> mapping.begin >> dash >> mapping.end >> mapping.access;
        all.push_back(mapping);
    }
    return all;
}

// How the page at `address` may be used; empty when there is none.
std::string access_at(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const Mapping& mapping : mappings()) {
        if (mapping.begin <= at && at < mapping.end) return mapping.access;
    }
    return "";
}

bool any_writable_and_executable() {
    for (const Mapping& mapping : mappings()) {
        if (mapping.access[1] == 'w' && mapping.access[2] == 'x') return true;
    }
    return false;
}

const void* pages_of(const Code& code) { return code.bytes().data(); }

TEST_CASE("code runs and keeps its bytes") {
    const Code code(kReturn42);
    CHECK(code.entry<Answer>()() == 42);
    CHECK(std::vector<std::uint8_t>(code.bytes().begin(), code.bytes().end()) ==
          std::vector<std::uint8_t>(kReturn42.begin(), kReturn42.end()));
    CHECK(mapped_code_bytes() >= 4096);
    CHECK(mapped_code_bytes() % 4096 == 0);
}

TEST_CASE("a thousand small pieces of code share pages and each runs") {
    const std::int64_t before = mapped_code_bytes();
    std::vector<Code> all;
    for (int i = 0; i < 1000; ++i) {
        std::array<std::uint8_t, 6> code = kReturn42;
        code[1] = static_cast<std::uint8_t>(i);
        all.emplace_back(code);
    }
    CHECK(mapped_code_bytes() - before < 1000 * 4096 / 4);
    for (int i = 0; i < 1000; ++i) {
        CHECK(all[static_cast<std::size_t>(i)].entry<Answer>()() == i % 256);
    }
}

TEST_CASE("a forked child neither sees nor disturbs what its parent adds") {
    const Code before(kReturn42);
    const pid_t child = fork();
    if (child == 0) {
        const Code own(kReturn43);
        _exit(before.entry<Answer>()() == 42 && own.entry<Answer>()() == 43 ? 0 : 1);
    }
    const Code after(kReturn43);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(before.entry<Answer>()() == 42);
    CHECK(after.entry<Answer>()() == 43);
}

TEST_CASE("pages of code are readable and executable, never writable") {
    const std::vector<std::uint8_t> long_code(3 * 4096 + 1, 0x90);
    for (const auto& [pages, access] :
         {std::pair{Pages::shared, "r-xs"}, std::pair{Pages::own, "r-xp"}}) {
        const Code code(kReturn42, pages);
        CHECK(access_at(pages_of(code)) == access);
        const Code longer(long_code, pages);
        CHECK(access_at(longer.bytes().data() + long_code.size() - 1) == access);
    }
    CHECK(!any_writable_and_executable());
}

TEST_CASE("generated kernels leave no page that is writable and executable") {
    const auto kernels = testing::all_kernels({.m = 5, .n = 6, .k = 7});
    for (const Brgemm& kernel : kernels) {
        if (kernel.isa() == Isa::scalar) {
            CHECK(kernel.code().empty());
        } else {
            CHECK(access_at(kernel.code().data()) == "r-xs");
        }
    }
    CHECK(!any_writable_and_executable());
}

TEST_CASE("empty code has no entry") {
    const Code code;
    CHECK((code.entry<Answer>() == nullptr));
    CHECK(code.bytes().empty());
}

TEST_CASE("moving hands the pages over") {
    static_assert(!std::is_copy_constructible_v<Code>);
    static_assert(!std::is_copy_assignable_v<Code>);
    static_assert(std::is_nothrow_move_constructible_v<Code>);
    Code first(kReturn42);
    const void* const pages = pages_of(first);
    Code second(std::move(first));
    CHECK(pages_of(second) == pages);
    CHECK((first.entry<Answer>() == nullptr));  // NOLINT(bugprone-use-after-move)
    CHECK(first.bytes().empty());
    CHECK(second.entry<Answer>()() == 42);

    Code third(kReturn43);
    third = std::move(second);
    CHECK(third.entry<Answer>()() == 42);
    CHECK(pages_of(third) == pages);
}

TEST_CASE("the end of the last owner returns the pages") {
    const std::vector<std::uint8_t> whole_slab(std::size_t{1} << 20, 0xC3);
    for (const Pages kind : {Pages::shared, Pages::own}) {
        const std::int64_t before = mapped_code_bytes();
        const void* pages = nullptr;
        {
            const Code code(whole_slab, kind);
            pages = pages_of(code);
            // Less the slab that was being filled, which may go at this moment.
            CHECK(mapped_code_bytes() - before >= (std::int64_t{1} << 20) - (1 << 18));
        }
        const Code next(whole_slab, kind);  // the slab being filled goes with its successor
        if (pages_of(next) != pages) CHECK(access_at(pages).find('x') == std::string::npos);
    }
}

struct CachedCode {
    Code code;

    std::int64_t bytes() const { return std::ssize(code.bytes()); }
    std::int64_t mapped_before() const { return code.mapped_before(); }
};

TEST_CASE("a few old kernels in each slab do not keep all of them") {
    constexpr CacheBounds bounds{.entries = 4096, .bytes = std::int64_t{8} << 20};
    constexpr int count = 2000, together = 20;
    const std::vector<std::uint8_t> most_of_a_slab(200 << 10, 0xC3);
    auto& cache = process_cache<Cache<int, CachedCode>, bounds>();
    const auto ask = [&](int key, std::span<const std::uint8_t> code) {
        return cache.get_or_create(
            key, [&] { return std::make_shared<const CachedCode>(CachedCode{Code(code)}); });
    };
    const auto held = ask(-1, kReturn42);
    std::int64_t most = 0;
    for (int i = 0; i < count; ++i) {
        ask(2 * i, most_of_a_slab);
        ask(2 * i + 1, kReturn43);
        most = std::max(most, mapped_code_bytes());
        // Asked for again, so that it is not the oldest.
        for (int j = 1; i % together == 0 && j < 2 * i; j += 2) ask(j, kReturn43);
    }
    CHECK(most > kMostMappedCode / 2);
    CHECK(most <= kMostMappedCode + (std::int64_t{16} << 20));
    CHECK(cache.info().bytes <= bounds.bytes);
    CHECK(held->code.entry<Answer>()() == 42);
    CHECK(ask(1, kReturn43)->code.entry<Answer>()() == 43);
    cache.clear();
}

TEST_CASE("an operating system that refuses is an exception") {
    // No address space holds so many bytes; none of them is read.
    const std::span<const std::uint8_t> too_long(kReturn42.data(), std::size_t{1} << 60);
    CHECK_THROWS_AS(Code{too_long}, std::system_error);
}

}  // namespace
}  // namespace dlprim
