// Calls of rare functions, behind the rest of the code.
#include <array>
#include <cstddef>
#include <cstdint>

#include "rows/functions/rare_function.h"
#include "rows/row_emitter.h"

namespace dlprim {
namespace {

constexpr std::uint8_t kAbove = 14;
// What a call may overwrite, beside vectors and masks: rcx, rdx, rsi, rdi and r8 to r11.
constexpr std::array kOverwritten = {1, 2, 6, 7, 8, 9, 10, 11};
constexpr int kMasks = 8;
constexpr int kWords = (static_cast<int>(kOverwritten.size()) + kMasks) * 8;

}  // namespace

// The mask of rare elements is in eax where there are any.
void RowEmitter::rare(const RowStep& step, int to, int lane) {
    const auto function = static_cast<RareFunction>(step.detail);
    RareCall& it = rare_calls_.emplace_back();
    it.step = step;
    it.to = to;
    it.lane = lane;
    const Vector size = vector(in_register(step.from[1], lane, 0));
    compare_floats(kAbove, size, number(rare_above(function)), vector(1));
    if (avx512()) {
        kmovw(eax, k2);
    } else {
        vmovmskps(eax, vector(1));
    }
    test(eax, eax);
    jnz(it.begin, T_NEAR);
    const int usual = in_register(step.from[2], lane, to);
    if (usual != to) copy(to, usual);
    L(it.end);
}

void RowEmitter::emit_rare_calls() {
    const int bytes = vector_bytes(), registers = vector_file(isa()).registers;
    const int operands = kWords + registers * bytes;
    const int room = operands + 4 * bytes;  // a multiple of 64, as the frame begins at one
    const auto kept = [&](int index) { return rsp + at(kWords + index * bytes); };
    for (RareCall& it : rare_calls_) {
        L(it.begin);
        const int a = in_register(it.step.from[0], it.lane, 0);
        const int usual = in_register(it.step.from[2], it.lane, 2);
        const int b = in_register(it.step.from[3], it.lane, 3);
        sub(rsp, room);
        for (std::size_t i = 0; i < kOverwritten.size(); ++i)
            mov(ptr[rsp + i * 8], Xbyak::Reg64(kOverwritten.at(i)));
        for (int i = 1; avx512() && i < kMasks; ++i)
            kmovq(ptr[rsp + (kOverwritten.size() * 8 + at(i) * 8)], Xbyak::Opmask(i));
        for (int i = 0; i < registers; ++i) vmovups(ptr[kept(i)], vector(i));
        for (const auto& [place, index] :
             {std::array{0, a}, std::array{1, b}, std::array{2, usual}})
            vmovups(ptr[rsp + at(operands + place * bytes)], vector(index));
        lea(rdi, ptr[rsp + operands]);
        mov(esi, eax);
        mov(edx, lanes_);
        mov(ecx, it.step.detail);
        mov(rax, reinterpret_cast<std::size_t>(&replace_rare));
        vzeroupper();
        call(rax);
        for (int i = 0; i < registers; ++i) vmovups(vector(i), ptr[kept(i)]);
        vmovups(vector(it.to), ptr[rsp + at(operands + 2 * bytes)]);
        for (int i = 1; avx512() && i < kMasks; ++i)
            kmovq(Xbyak::Opmask(i), ptr[rsp + (kOverwritten.size() * 8 + at(i) * 8)]);
        for (std::size_t i = 0; i < kOverwritten.size(); ++i)
            mov(Xbyak::Reg64(kOverwritten.at(i)), ptr[rsp + i * 8]);
        add(rsp, room);
        jmp(it.end, T_NEAR);
    }
}

}  // namespace dlprim
