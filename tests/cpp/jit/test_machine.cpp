#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "jit/isa.h"
#include "jit/machine.h"

namespace dlprim {
namespace {

// What the system says of a cache of this CPU; 0 where it says nothing.
double system_cache(int wanted) {
    for (int index = 0; index < 8; ++index) {
        const std::string folder =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        int level = 0;
        std::string type;
        double kilobytes = 0;
        std::ifstream(folder + "level") >> level;
        std::ifstream(folder + "type") >> type;
        std::ifstream(folder + "size") >> kilobytes;
        if (level == wanted && type != "Instruction") return kilobytes * 1024;
    }
    return 0;
}

TEST_CASE("the machine's caches are those that the system knows") {
    const Machine& machine = this_machine();
    const double sizes[] = {machine.l1, machine.l2, machine.l3};
    for (int level = 1; level <= 3; ++level) {
        const double expected = system_cache(level);
        if (expected > 0) CHECK(sizes[level - 1] == expected);
    }
    CHECK(machine.l1 >= 8e3);
    CHECK(machine.l2 >= machine.l1);
    CHECK(machine.l3 >= machine.l1);
}

TEST_CASE("rows a power of two apart share a part of the L1 cache") {
    constexpr Machine zen3{.l1 = 32768};
    CHECK(zen3.rows_kept(64) == 256);   // both operands' lines fill it
    CHECK(zen3.rows_kept(256) == 64);   // every fourth of 64 sets
    CHECK(zen3.rows_kept(4096) == 4);   // one set of eight ways
    CHECK(zen3.rows_kept(320) == 256);  // five lines reach every set
    constexpr Machine zen5{.l1 = 49152, .l1_ways = 12};
    CHECK(zen5.rows_kept(256) == 96);
}

TEST_CASE("the machine is the same whenever it is asked for, and goes with the usable ISA") {
    CHECK(this_machine() == this_machine());
    CHECK(this_machine() == machine_at(usable_isa()));
    CHECK(machine_at(Isa::avx2).few_registers());
    CHECK(!machine_at(Isa::avx512).few_registers());
    CHECK((this_machine().halves_rate > 1) == (usable_isa() >= Isa::avx512_bf16));
    CHECK(this_machine().flops_per_cycle() == 64);
}

}  // namespace
}  // namespace dlprim
