#include "jit/machine.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>

#include <cpuid.h>
#include <sched.h>

#include "jit/isa.h"

namespace dlprim {
namespace {

constexpr unsigned kVendorLeaf = 0;
constexpr unsigned kFamilyLeaf = 1;
constexpr unsigned kCacheLeaf = 4;               // Intel's
constexpr unsigned kAmdCacheLeaf = 0x8000'001D;  // in the same form
constexpr unsigned kAmdVendor = 0x6874'7541;     // "Auth", in EBX
constexpr unsigned kIntelVendor = 0x756E'6547;   // "Genu"
constexpr int kZen3Family = 0x19;                // and Zen 4's, which has AVX-512
constexpr int kZen5Family = 0x1A;
constexpr int kMostCaches = 8;
constexpr std::int64_t kLineBytes = 64;

struct Registers {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;

    // Bits `low` to `high` of a register.
    static std::int64_t bits(unsigned value, int low, int high) {
        return (std::int64_t{value} >> low) & ((std::int64_t{1} << (high - low + 1)) - 1);
    }
};

// Zeros where the CPU has no such leaf.
Registers cpuid(unsigned leaf, unsigned part = 0) {
    Registers it;
    __get_cpuid_count(leaf, part, &it.a, &it.b, &it.c, &it.d);
    return it;
}

void set_cache(Machine& machine, std::int64_t level, double bytes) {
    if (level == 1) machine.l1 = bytes;
    if (level == 2) machine.l2 = bytes;
    if (level == 3) machine.l3 = bytes;
}

// Whether the leaf says anything.
bool read_caches(Machine& machine, unsigned leaf) {
    enum : std::int64_t { none, data, instructions };
    for (int index = 0; index < kMostCaches; ++index) {
        const Registers it = cpuid(leaf, static_cast<unsigned>(index));
        const std::int64_t kind = Registers::bits(it.a, 0, 4);
        if (kind == none) return index > 0;
        if (kind == instructions) continue;
        const std::int64_t ways = Registers::bits(it.b, 22, 31) + 1;
        const std::int64_t partitions = Registers::bits(it.b, 12, 21) + 1;
        const std::int64_t line = Registers::bits(it.b, 0, 11) + 1;
        const std::int64_t sets = std::int64_t{it.c} + 1;
        const std::int64_t level = Registers::bits(it.a, 5, 7);
        set_cache(machine, level, static_cast<double>(ways * partitions * line * sets));
        if (level == 1) machine.l1_ways = static_cast<int>(ways);
    }
    return true;
}

double bytes_in(const std::string& text) {
    std::size_t used = 0;
    const double number = std::stod(text, &used);
    const char unit = used < text.size() ? text[used] : ' ';
    return number * (unit == 'K' ? 1024 : unit == 'M' ? 1048576 : 1);
}

void read_system_caches(Machine& machine) {
    for (int index = 0; index < kMostCaches; ++index) {
        const std::string folder =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        std::ifstream level_file(folder + "level");
        std::ifstream type_file(folder + "type");
        std::ifstream size_file(folder + "size");
        int level = 0;
        std::string type;
        std::string size;
        if (!(level_file >> level) || !(type_file >> type) || !(size_file >> size)) continue;
        if (type == "Instruction" || size.empty() || size[0] < '0' || size[0] > '9') continue;
        set_cache(machine, level, bytes_in(size));
    }
}

// 0 for other vendors.
std::int64_t amd_family() {
    const unsigned family = cpuid(kFamilyLeaf).a;
    const std::int64_t base = Registers::bits(family, 8, 11);
    const std::int64_t extended = base == 0xF ? Registers::bits(family, 20, 27) : 0;
    return cpuid(kVendorLeaf).b == kAmdVendor ? base + extended : 0;
}

// Zen 3 and Zen 4 at AVX2: small tiles show what lines from the L2 cache cost.
void set_amd_at_avx2(Machine& machine, bool is_zen4) {
    machine.bytes_from_l2_per_cycle = is_zen4 ? 32 : 25;
    machine.scattered_bytes_from_l2_per_cycle = is_zen4 ? 20 : 14;
    machine.l2_exposed = is_zen4 ? 0.05 : 0.1;
    machine.fma_latency = 4;
}

Machine read_machine(Isa level) {
    Machine machine;
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0) machine.cores = CPU_COUNT(&usable);
    if (!read_caches(machine, kCacheLeaf) && !read_caches(machine, kAmdCacheLeaf)) {
        read_system_caches(machine);
    }
    if (level < Isa::avx512) machine.vector_registers = 16;
    if (level >= Isa::avx512_bf16) machine.halves_rate = level >= Isa::amx ? 8 : 2;
    machine.shuffles_beat_broadcast_loads = amd_family() >= kZen5Family;
    if (cpuid(kVendorLeaf).b == kIntelVendor) {
        machine.columns_again = 0.02;
        machine.fma_latency = 4;
        machine.pairs_are_slow = true;
        // Ports 0 and 5, which multiply too; port 1 as well for 256 bits.
        machine.vector_ops_per_cycle = level >= Isa::avx512 ? 2 : 3;
    }
    if (amd_family() == kZen3Family) {
        machine.follows_many_streams = true;
        machine.rows_side_by_side = 8;
        if (level < Isa::avx512) set_amd_at_avx2(machine, detected_isa() >= Isa::avx512);
        // Zen 4 has four pipes of 256 bits, of which two multiply.
        if (level >= Isa::avx512) {
            machine.vector_ops_per_cycle = 2;
            machine.sustained_fmas_per_cycle = 1;
        }
    }
    return machine;
}

}  // namespace

double Machine::lines_kept(std::int64_t bytes_apart) const {
    const auto sets = static_cast<std::int64_t>(l1) / kLineBytes / l1_ways;
    const std::int64_t lines_apart = std::max<std::int64_t>(bytes_apart / kLineBytes, 1);
    return static_cast<double>(sets / std::gcd(sets, lines_apart) * l1_ways);
}

const Machine& machine_at(Isa level) {
    static const std::array<Machine, kIsaLevels> machines = [] {
        std::array<Machine, kIsaLevels> made;
        for (std::size_t i = 0; i < made.size(); ++i) made[i] = read_machine(static_cast<Isa>(i));
        return made;
    }();
    return machines[static_cast<std::size_t>(level)];
}

const Machine& this_machine() { return machine_at(usable_isa()); }

}  // namespace dlprim
