// The one model of the machine that everything weighs its choices with: register tiles, schedules,
// Winograd's tiles. It is read once and is a plain value that plans take as an argument, so that
// the plans of any machine can be made and tested on any other. How long other instructions than
// the one below take is the kernel's to know (brgemm/multiply.h).
#pragma once

#include <cstdint>

#include "jit/isa.h"

namespace dlprim {

struct Machine {
    // That the process may use when this is read, whatever number of threads it asks for.
    std::int64_t cores = 8;
    // Bytes of the data caches that one core sees.
    double l1 = 32e3;
    double l2 = 1e6;
    double l3 = 32e6;
    int l1_ways = 8;
    // What a core starts in a cycle: multiply-adds of whole vectors, loads of them, and vector
    // operations of any kind.
    double fmas_per_cycle = 2;
    // Multiply-adds that a core finishes in a cycle: one where vectors of 512 bits are two halves.
    // Ways of a product are weighed with it, tiles are not: with one a cycle loads seem to cost
    // nothing, and tiles of one vector were chosen that write C four times as often (210 x 64 x 64
    // in rows of 4 KiB: 1.2 times as long).
    double sustained_fmas_per_cycle = 2;
    double loads_per_cycle = 2;
    double vector_ops_per_cycle = 4;
    // Cycles of a float32 multiply-add on AVX2, with what it takes to schedule around loads.
    double fma_latency = 5;
    // That stream in beside other loads: of neighbouring lines, and of single lines of rows that
    // are apart. And how much of that time shows even behind enough arithmetic.
    double bytes_from_l2_per_cycle = 32;
    double scattered_bytes_from_l2_per_cycle = 32;
    double l2_exposed = 0;
    // Of the time of many rows that come from memory, what every block of columns adds that goes
    // through them again (Granite Rapids: 6 rows x 4 vectors take 0.83 to 0.95 of the time of
    // 14 x 2).
    double columns_again = 0;
    // Rows of a matrix that stream in side by side at full speed, for one or two rows of the other
    // factor; for up to eight of these twice as many, for more four times, at most 32: they need
    // fewer bytes in a cycle.
    std::int64_t rows_side_by_side = 32;
    // Reads six rows of a matrix side by side faster than with software's help.
    bool follows_many_streams = false;
    // Float32 values of the vectors that arithmetic is weighed with against the caches. 16 for
    // every ISA level so far: 8 would choose other schedules for AVX2, which nobody has timed.
    double lanes = 16;
    int vector_registers = 32;
    // Small tiles read their operands again and again, and a load shows beside a multiply-add.
    bool few_registers() const { return vector_registers < 32; }
    // Float32 values of the vectors that there are.
    double vector_lanes() const { return few_registers() ? 8 : 16; }
    // Lines so many bytes apart of which the L1 cache keeps that many.
    double lines_kept(std::int64_t bytes_apart) const;
    // A transposed product walks down two operands whose rows are `row_bytes` apart: so many rows
    // of each keep their lines in the L1 cache.
    double rows_kept(std::int64_t row_bytes) const { return lines_kept(row_bytes) / 2; }
    // Bfloat16 multiplications for one of float32: 2 where an instruction takes pairs; with tiles 8
    // of the 16 that would be, which is what their loads leave.
    double halves_rate = 1;
    // Such an instruction takes longer than to widen both of its pairs and to multiply twice
    // (Intel: 0.43 of the products of float32, Emerald Rapids).
    bool pairs_are_slow = false;
    // A register shuffle runs beside two vector FMAs per cycle while vector loads do not keep up
    // with one broadcast per FMA (AMD Zen 5; on Intel the shuffle port is an FMA port).
    bool shuffles_beat_broadcast_loads = false;

    // Float32 operations at most.
    double flops_per_cycle() const { return 2 * fmas_per_cycle * lanes; }

    friend bool operator==(const Machine&, const Machine&) = default;
};

// What CPUID says, for kernels of that level, and what the system says where it is silent; read
// once.
const Machine& machine_at(Isa level);

// At the level of usable_isa().
const Machine& this_machine();

}  // namespace dlprim
