// Memory of a row program: operands, scratch, single values, and partial vectors.
#include <cstddef>

#include "rows/row_emitter.h"

namespace dlprim {
namespace {

std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

// Overwrites rax where the operand has no register.
RowEmitter::Place RowEmitter::place_of(int operand, int lane) {
    const int pointer = pointers_.at(bytes(operand));
    if (pointer < 0) mov(rax, pointer_of(operand));
    const auto size = static_cast<int>(size_of(plan_.spec.operands[bytes(operand)].dtype));
    return Xbyak::Reg64(pointer < 0 ? 0 : pointer) + rsi * size +
           bytes(std::int64_t{lane} * lanes_ * size);
}

// Overwrites rax.
RowEmitter::Place RowEmitter::kept_place(int row, int lane) {
    mov(rax, pointer_of(kMostRowOperands + row));
    return rax + rsi * 4 + bytes(std::int64_t{lane} * lanes_ * 4);
}

RowEmitter::Place RowEmitter::stack_vector(int index) const { return rsp + bytes(index * 64); }

Xbyak::Address RowEmitter::number_of_call(Number number) {
    return qword[stack_vector(plan_.stack_vectors + 2) + bytes(static_cast<int>(number) * 8)];
}

Xbyak::Address RowEmitter::pointer_of(int operand) {
    return qword[stack_vector(plan_.stack_vectors + 3) + bytes(operand * 8)];
}

RowEmitter::Place RowEmitter::argument(int operand) const {
    return rdi + offsetof(RowArgs, operands) + bytes(operand) * sizeof(RowArgs::Operand);
}

void RowEmitter::load_column_or_tensor(const RowStep& step, int to, Lane lane) {
    const DType dtype = plan_.spec.operands[step.detail].dtype;
    const Place from = place_of(step.detail, lane.index);
    if (lane.masked && !avx512()) {
        load_part(to, from, dtype);
    } else {
        load_elements(to, from, dtype, lane.masked);
    }
}

// Rounding and narrowing work on a copy: the value may be needed again.
void RowEmitter::store_tensor(const RowStep& step, Lane lane) {
    const DType dtype = plan_.spec.operands[step.detail].dtype;
    int from = in_register(step.from[0], lane.index, 0);
    if (size_of(dtype) < 4 && from != 0) {
        copy(0, from);
        from = 0;
    }
    const Place to = place_of(step.detail, lane.index);
    if (step.streams && !lane.masked) {
        store_around_caches(to, from, lanes_ * 4);
    } else if (lane.masked && !avx512()) {
        store_part(to, from, dtype);
    } else {
        store_elements(to, from, dtype, lane.masked, 1);
    }
}

void RowEmitter::add_to_column(const RowStep& step, Lane lane) {
    if (step.to.kind == RowPlace::Kind::columns) {
        const int sum = register_of(step.to, lane.index);
        with(step.from[0], lane.index,
             [&](const Xbyak::Operand& x) { vaddps(vector(sum), vector(sum), x); });
        return;
    }
    load_column_or_tensor(step, 0, lane);
    with(step.from[0], lane.index,
         [&](const Xbyak::Operand& x) { vaddps(vector(0), vector(0), x); });
    const Place to = place_of(step.detail, lane.index);
    if (lane.masked && !avx512()) {
        store_part(to, 0, DType::f32);
    } else {
        store(to, 0, lane.masked, 1);
    }
}

void RowEmitter::load_tail_mask(int to) {
    vmovups(vector(to), ptr[stack_vector(plan_.stack_vectors)]);
}

// AVX2. Narrow elements go through a vector on the stack, one by one.
void RowEmitter::load_part(int to, const Place& from, DType dtype) {
    if (size_of(dtype) == 4) {
        load_tail_mask(to);
        vmaskmovps(vector(to), vector(to), ptr[from]);
        return;
    }
    lea(rax, ptr[from]);
    copy_part(true, dtype);
    load_elements(to, stack_vector(plan_.stack_vectors + 1), dtype, false);
}

// Overwrites scratch from 1 on, and what is stored if it is narrow.
void RowEmitter::store_part(const Place& to, int from, DType dtype) {
    if (size_of(dtype) == 4) {
        load_tail_mask(1);
        vmaskmovps(ptr[to], vector(1), vector(from));
        return;
    }
    lea(rax, ptr[to]);
    store_elements(stack_vector(plan_.stack_vectors + 1), from, dtype, false, 1);
    copy_part(false, dtype);
}

void RowEmitter::copy_part(bool in, DType dtype) {
    Xbyak::Label next;
    const Place stack = stack_vector(plan_.stack_vectors + 1);
    mov(rcx, number_of_call(Number::tail));
    L(next);
    if (size_of(dtype) == 2) {
        const auto memory = word[rax + rcx * 2 - 2];
        const auto passing = word[stack + rcx * 2 - 2];
        mov(r11w, in ? memory : passing);
        mov(in ? passing : memory, r11w);
    } else {
        const auto memory = byte[rax + rcx - 1];
        const auto passing = byte[stack + rcx - 1];
        mov(r11b, in ? memory : passing);
        mov(in ? passing : memory, r11b);
    }
    dec(rcx);
    jnz(next);
}

void RowEmitter::load_single(const RowStep& step, int to) {
    if (step.op == RowOp::columns) {
        const Xbyak::Xmm low(to);
        zero(to);
        vcvtsi2ss(low, low, qword[rdi + offsetof(RowArgs, columns)]);
        vbroadcastss(vector(to), low);
        return;
    }
    const int pointer = pointers_.at(step.detail);
    if (pointer < 0) mov(rax, pointer_of(step.detail));
    broadcast(to, Place(Xbyak::Reg64(pointer < 0 ? 0 : pointer)));
}

void RowEmitter::store_single(const RowStep& step) {
    const int from = in_register(step.from[0], 0, 0);
    const int pointer = pointers_.at(step.detail);
    if (pointer < 0) mov(rax, pointer_of(step.detail));
    vmovss(dword[Xbyak::Reg64(pointer < 0 ? 0 : pointer)], Xbyak::Xmm(from));
}

}  // namespace dlprim
