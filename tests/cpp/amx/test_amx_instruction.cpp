#include <doctest/doctest.h>
#include <xbyak/xbyak.h>

#include "amx/amx_instruction.h"
#include "guarded_memory.h"

namespace dlprim::testing {
namespace {

using Assembler = Xbyak::CodeGenerator;
using enum AmxOperation;

constexpr int kNone = AmxAddress::kNone;
constexpr int kNext = AmxAddress::kNextInstruction;

struct Golden {
    std::vector<std::uint8_t> bytes;
    void (*assemble)(Assembler& it);
    AmxOperation operation;
    std::array<int, 3> tiles;
    AmxAddress address;
};

// The bytes are what the GNU assembler 2.40 makes of each; objdump showed them as the same again.
const std::vector<Golden>& golden() {
    static const std::vector<Golden> all = {
        {{0xC4, 0xE2, 0x78, 0x49, 0x07},
         [](Assembler& it) { it.ldtilecfg(it.ptr[it.rdi]); },
         ldtilecfg,
         {},
         {.base = 7}},
        {{0xC4, 0xE2, 0x78, 0x49, 0x44, 0x24, 0x40},
         [](Assembler& it) { it.ldtilecfg(it.ptr[it.rsp + 0x40]); },
         ldtilecfg,
         {},
         {.base = 4, .displacement = 0x40}},
        {{0xC4, 0x82, 0x78, 0x49, 0x84, 0xE5, 0x45, 0x23, 0x01, 0x00},
         [](Assembler& it) { it.ldtilecfg(it.ptr[it.r13 + it.r12 * 8 + 0x12345]); },
         ldtilecfg,
         {},
         {13, 12, 8, 0x12345}},
        {{0xC4, 0xE2, 0x78, 0x49, 0x05, 0x00, 0x01, 0x00, 0x00},
         [](Assembler& it) { it.ldtilecfg(it.ptr[it.rip + 0x100]); },
         ldtilecfg,
         {},
         {.base = kNext, .displacement = 0x100}},
        {{0xC4, 0xE2, 0x78, 0x49, 0xC0},
         [](Assembler& it) { it.tilerelease(); },
         tilerelease,
         {},
         {}},
        {{0xC4, 0xE2, 0x7B, 0x49, 0xC0},
         [](Assembler& it) { it.tilezero(it.tmm0); },
         tilezero,
         {0},
         {}},
        {{0xC4, 0xE2, 0x7B, 0x49, 0xF8},
         [](Assembler& it) { it.tilezero(it.tmm7); },
         tilezero,
         {7},
         {}},
        {{0xC4, 0xE2, 0x7B, 0x4B, 0x0C, 0x06},
         [](Assembler& it) { it.tileloadd(it.tmm1, it.ptr[it.rsi + it.rax]); },
         tileloadd,
         {1},
         {6, 0, 1, 0}},
        {{0xC4, 0x82, 0x7B, 0x4B, 0x74, 0xAC, 0xC0},
         [](Assembler& it) { it.tileloadd(it.tmm6, it.ptr[it.r12 + it.r13 * 4 - 0x40]); },
         tileloadd,
         {6},
         {12, 13, 4, -0x40}},
        {{0xC4, 0x82, 0x7B, 0x4B, 0x5C, 0x65, 0x00},
         [](Assembler& it) { it.tileloadd(it.tmm3, it.ptr[it.r13 + it.r12 * 2]); },
         tileloadd,
         {3},
         {13, 12, 2, 0}},
        {{0xC4, 0xC2, 0x79, 0x4B, 0x24, 0x1F},
         [](Assembler& it) { it.tileloaddt1(it.tmm4, it.ptr[it.r15 + it.rbx]); },
         tileloaddt1,
         {4},
         {15, 3, 1, 0}},
        {{0xC4, 0xE2, 0x79, 0x4B, 0xBC, 0x28, 0x00, 0x04, 0x00, 0x00},
         [](Assembler& it) { it.tileloaddt1(it.tmm7, it.ptr[it.rax + it.rbp + 0x400]); },
         tileloaddt1,
         {7},
         {0, 5, 1, 0x400}},
        {{0xC4, 0xE2, 0x7A, 0x4B, 0x04, 0x0A},
         [](Assembler& it) { it.tilestored(it.ptr[it.rdx + it.rcx], it.tmm0); },
         tilestored,
         {0},
         {2, 1, 1, 0}},
        {{0xC4, 0x82, 0x7A, 0x4B, 0xBC, 0xF8, 0x88, 0xA9, 0xCB, 0xED},
         [](Assembler& it) { it.tilestored(it.ptr[it.r8 + it.r15 * 8 - 0x12345678], it.tmm7); },
         tilestored,
         {7},
         {8, 15, 8, -0x12345678}},
        {{0xC4, 0xE2, 0x6A, 0x5C, 0xC1},
         [](Assembler& it) { it.tdpbf16ps(it.tmm0, it.tmm1, it.tmm2); },
         tdpbf16ps,
         {0, 1, 2},
         {}},
        {{0xC4, 0xE2, 0x42, 0x5C, 0xDC},
         [](Assembler& it) { it.tdpbf16ps(it.tmm3, it.tmm4, it.tmm7); },
         tdpbf16ps,
         {3, 4, 7},
         {}},
        {{0xC4, 0xE2, 0x4B, 0x5E, 0xE5},
         [](Assembler& it) { it.tdpbssd(it.tmm4, it.tmm5, it.tmm6); },
         tdpbssd,
         {4, 5, 6},
         {}},
        {{0xC4, 0xE2, 0x7A, 0x5E, 0xCF},
         [](Assembler& it) { it.tdpbsud(it.tmm1, it.tmm7, it.tmm0); },
         tdpbsud,
         {1, 7, 0},
         {}},
        {{0xC4, 0xE2, 0x51, 0x5E, 0xF8},
         [](Assembler& it) { it.tdpbusd(it.tmm7, it.tmm0, it.tmm5); },
         tdpbusd,
         {7, 0, 5},
         {}},
        {{0xC4, 0xE2, 0x60, 0x5E, 0xF2},
         [](Assembler& it) { it.tdpbuud(it.tmm6, it.tmm2, it.tmm3); },
         tdpbuud,
         {6, 2, 3},
         {}},
    };
    return all;
}

void check_decoded(const std::vector<std::uint8_t>& bytes, AmxOperation operation,
                   const std::array<int, 3>& tiles, const AmxAddress& address) {
    const auto decoded = decode_amx(bytes.data());
    REQUIRE(decoded);
    CHECK(decoded->operation == operation);
    CHECK(decoded->length == static_cast<int>(bytes.size()));
    CHECK(decoded->tiles == tiles);
    CHECK(decoded->address.base == address.base);
    CHECK(decoded->address.index == address.index);
    CHECK(decoded->address.scale == address.scale);
    CHECK(decoded->address.displacement == address.displacement);
}

TEST_CASE("the assembler writes instructions of AMX as the GNU assembler does") {
    for (const Golden& it : golden()) {
        CAPTURE(std::string(name_of(it.operation)));
        Assembler assembler;
        it.assemble(assembler);
        const std::uint8_t* code = assembler.getCode();
        CHECK(std::vector<std::uint8_t>(code, code + assembler.getSize()) == it.bytes);
    }
}

TEST_CASE("instructions of AMX are decoded") {
    for (const Golden& it : golden()) {
        CAPTURE(std::string(name_of(it.operation)));
        check_decoded(it.bytes, it.operation, it.tiles, it.address);
    }
}

// Bytes of the GNU assembler, as Xbyak writes neither.
TEST_CASE("addresses without a base or without an index are decoded") {
    check_decoded({0xC4, 0xA2, 0x7B, 0x4B, 0x2C, 0xCD, 0x78, 0x56, 0x34, 0x12}, tileloadd, {5},
                  {kNone, 9, 8, 0x12345678});
    check_decoded({0xC4, 0xE2, 0x7B, 0x4B, 0x94, 0x25, 0x80, 0x00, 0x00, 0x00}, tileloadd, {2},
                  {.base = 5, .displacement = 0x80});
}

TEST_CASE("every address is decoded as it was written") {
    for (int number = 0; number < 16 * 16 * 4 * 3; ++number) {
        const int base = number % 16;
        const int index = number / 16 % 16;
        const int scale = 1 << number / 256 % 4;
        const int displacement = std::array{0, -7, 0x1000}[static_cast<std::size_t>(number / 1024)];
        if (index == 4) continue;  // no index is RSP
        Assembler it;
        it.tileloadd(it.tmm2,
                     it.ptr[Xbyak::Reg64(base) + Xbyak::Reg64(index) * scale + displacement]);
        const std::vector<std::uint8_t> bytes(it.getCode(), it.getCode() + it.getSize());
        check_decoded(bytes, tileloadd, {2}, {base, index, scale, displacement});
    }
}

TEST_CASE("no byte beyond an instruction is read") {
    constexpr int floats = 4;
    const GuardedMemory memory(floats, Fence::after);
    auto* end = reinterpret_cast<std::uint8_t*>(memory.data() + floats);
    for (const Golden& it : golden()) {
        std::uint8_t* start = std::copy_backward(it.bytes.begin(), it.bytes.end(), end);
        CHECK(decode_amx(start));
    }
    end[-1] = 0xC3;
    CHECK(!decode_amx(end - 1));
}

TEST_CASE("prefetches are measured") {
    for (const int base : {0, 4, 5, 12, 13}) {
        for (const int displacement : {0, 64, 4096}) {
            Assembler it;
            it.prefetcht0(it.ptr[Xbyak::Reg64(base) + displacement]);
            it.prefetchnta(it.ptr[Xbyak::Reg64(base) + it.r9 * 2 + displacement]);
            const int first = prefetch_length(it.getCode());
            const int second = prefetch_length(it.getCode() + first);
            CHECK(first > 0);
            CHECK(second > 0);
            CHECK(first + second == static_cast<int>(it.getSize()));
        }
    }
    CHECK(prefetch_length(golden()[0].bytes.data()) == 0);
}

TEST_CASE("other instructions are not decoded") {
    const std::vector<std::vector<std::uint8_t>> others = {
        {0x0F, 0x0B},                    // ud2
        {0xC5, 0xF8, 0x58, 0xC0},        // vaddps
        {0xC4, 0xE1, 0x78, 0x58, 0xC0},  // vaddps, with three bytes of VEX
        {0xC4, 0xE2, 0x7D, 0x58, 0x07},  // vpbroadcastd
        {0xC4, 0xE2, 0x79, 0x49, 0x07},  // sttilecfg
        {0xC4, 0xE2, 0x6B, 0x5C, 0xC1},  // tdpfp16ps
        {0xC4, 0xE2, 0x7B, 0x4B, 0x0E},  // tileloadd without SIB
        {0xC4, 0xE2, 0x7B, 0x4B, 0xC1},  // tileloadd of registers
        {0xC4, 0xE2, 0x6A, 0x5C, 0x01},  // tdpbf16ps of memory
        {0xC4, 0xE2, 0xEA, 0x5C, 0xC1},  // tdpbf16ps with VEX.W
        {0xC4, 0xE2, 0x6E, 0x5C, 0xC1},  // tdpbf16ps with VEX.L
        {0xC4, 0xE2, 0x73, 0x49, 0xC0},  // tilezero with VEX.vvvv
    };
    for (const auto& bytes : others) CHECK(!decode_amx(bytes.data()));
}

}  // namespace
}  // namespace dlprim::testing
