// Memory of a row program: operands, scratch, single values, and partial vectors.
#include <algorithm>
#include <cstddef>

#include "rows/row_emitter.h"

namespace dlprim {
namespace {

std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

// The register of an operand's pointer; one that has none is brought to `spare`.
Xbyak::Reg64 RowEmitter::pointer_to(int operand, const Xbyak::Reg64& spare) {
    const Xbyak::Reg64 pointer = pointers_.at(at(operand));
    if (pointer != rax) return pointer;
    mov(spare, pointer_of(operand));
    return spare;
}

// Overwrites rax where the operand has no register.
RowEmitter::Place RowEmitter::place_of(int operand, std::int32_t offset, int lane) {
    const Xbyak::Reg64 base = pointer_to(operand, rax);
    const RowOperand& it = plan_.spec.operands[bytes(operand)];
    const auto size = static_cast<int>(size_of(it.dtype));
    const bool listed = it.shape == RowShape::listed;
    return base + (listed ? r15 : rsi) * size + bytes(std::int64_t{lane} * lanes_ * size + offset);
}

// The same.
RowEmitter::Place RowEmitter::kept_place(int row, int lane) {
    return pointer_to(kMostRowOperands + row, rax) + rsi * 4 +
           bytes(std::int64_t{lane} * lanes_ * 4);
}

// AVX2 masks no narrow elements: those go through a vector on the stack, one by one.
void RowEmitter::load_elements_of(int operand, std::int32_t offset, int to, Lane lane) {
    const DType dtype = plan_.spec.operands[bytes(operand)].dtype;
    const Place from = place_of(operand, offset, lane.index);
    fetch_ahead(operand, from, lane.index);
    if (lane.masked && !avx512() && size_of(dtype) == 4) {
        load_tail_mask(to);
        vmaskmovps(vector(to), vector(to), ptr[from]);
    } else if (lane.masked && !avx512()) {
        lea(rax, ptr[from]);
        copy_part(true, dtype);
        load_elements(to, stack_vector(plan_.stack_vectors + 1), dtype, false);
    } else if (dtype == DType::bf16 && widens_) {
        widen(to, from, lane.masked);
    } else {
        load_elements(to, from, dtype, lane.masked);
    }
}

// One shuffle in place of one and a shift. On AVX-512 what it does lies in the last register, if
// the program leaves that.
void RowEmitter::prepare_widening() {
    const auto& operands = plan_.spec.operands;
    const bool has_halves = std::any_of(operands.begin(), operands.end(), [](const auto& it) {
        return it.dtype == DType::bf16 && !it.written;
    });
    widens_ = has_halves && (!avx512() || plan_.registers.total <= kWidening);
    if (!widens_ || !avx512()) return;
    mov(eax, 0xAAAAAAAA);
    kmovd(k4, eax);
    vmovups(vector(kWidening), ptr[rip + upper_halves_]);
}

void RowEmitter::widen(int to, const Place& from, bool masked) {
    const Vector v = vector(to);
    if (!avx512()) {
        vbroadcastf128(Xbyak::Ymm(to), ptr[from]);
        return vpshufb(v, v, ptr[rip + upper_halves_]);
    }
    const Xbyak::Ymm halves(to);
    if (masked) {
        vmovdqu16(halves | tail_mask() | T_z, ptr[from]);
    } else {
        vmovups(halves, ptr[from]);
    }
    vpermw(v | k4 | T_z, vector(kWidening), v);
}

void RowEmitter::emit_upper_halves() {
    if (!widens_) return;
    align(64);
    L(upper_halves_);
    for (int lane = 0; lane < lanes_; ++lane) {
        if (avx512()) {
            dd(static_cast<std::uint32_t>(lane * 0x10001));
        } else {
            constexpr std::uint32_t kZeros = 0x8080, kFirst = 0x0100;
            dd((kFirst + static_cast<std::uint32_t>(lane) * 0x0202) << 16 | kZeros);
        }
    }
}

// As the result of an addition where bytes are alike, which lies where the sum was before.
void RowEmitter::add_chosen(const RowStep& step, int to, Lane lane) {
    const Xbyak::Xmm wanted(in_register(step.from[0], lane.index, 3)), bytes(1);
    const Vector x = vector(in_register(step.from[1], lane.index, 0));
    const Vector total = vector(in_register(step.from[2], lane.index, 2));
    Place from = place_of(step, lane.index);
    if (avx512()) {
        vpcmpeqb(lane.masked ? k2 | tail_mask() : k2, wanted, ptr[from]);
        const Vector sum = total.getIdx() == to ? total : vector(2);
        if (sum.getIdx() != total.getIdx()) vmovaps(sum, total);
        vaddps(sum | k2, sum, x);
        if (sum.getIdx() != to) copy(to, sum.getIdx());
        return;
    }
    if (lane.masked) {
        lea(rax, ptr[from]);
        copy_part(true, DType::u8);
        from = stack_vector(plan_.stack_vectors + 1);
    }
    vmovq(bytes, ptr[from]);
    vpcmpeqb(bytes, bytes, wanted);
    vpmovsxbd(vector(1), bytes);
    vandps(vector(1), vector(1), x);
    vaddps(vector(to), total, vector(1));
}

// Rounding and narrowing work on a copy: the value may be needed again.
void RowEmitter::store_tensor(const RowStep& step, Lane lane) {
    const DType dtype = plan_.spec.operands[step.detail].dtype;
    const bool narrows = dtype == DType::bf16 && !step.exact && has_bf16();
    int from = in_register(step.from[0], lane.index, 0);
    if (narrows) {
        narrow(0, from);
    } else if (size_of(dtype) == 2 && from != 0) {
        copy(0, from);
    }
    if (size_of(dtype) == 2) from = 0;
    const Place to = place_of(step, lane.index);
    fetch_ahead(step.detail, to, lane.index);
    if (narrows && lane.masked) {
        vmovdqu16(ptr[to] | tail_mask(), Xbyak::Ymm(from));
    } else if (narrows) {
        vmovups(ptr[to], Xbyak::Ymm(from));
    } else if (step.streams && !lane.masked) {
        store_around_caches(to, from, lanes_ * 4);
    } else {
        store_elements_at(to, from, dtype, lane.masked, step.exact);
    }
}

void RowEmitter::add_to_column(const RowStep& step, Lane lane) {
    const bool in_strips = step.to.kind == RowPlace::Kind::columns;
    const int sum = in_strips ? register_of(step.to, lane.index) : 0;
    if (!in_strips) load_elements_of(step.detail, step.offset, sum, lane);
    if (step.from[1].kind == RowPlace::Kind::none) {
        with(step.from[0], lane.index,
             [&](const Xbyak::Operand& x) { vaddps(vector(sum), vector(sum), x); });
    } else {
        const int x = in_register(step.from[0], lane.index, 1);
        with(step.from[1], lane.index,
             [&](const Xbyak::Operand& y) { vfmadd231ps(vector(sum), vector(x), y); });
    }
    if (in_strips) return;
    store_elements_at(place_of(step, lane.index), sum, DType::f32, lane.masked);
}

// AVX512_BF16 rounds as bfloat16 is rounded everywhere else here, but takes subnormal numbers for
// 0: these go a longer way.
void RowEmitter::narrow(int to, int from) {
    constexpr std::uint8_t kSubnormal = 0x20;
    Narrowing& it = narrowings_.emplace_back();
    it.to = to;
    it.from = from;
    vfpclassps(k2, vector(from), kSubnormal);
    kortestw(k2, k2);
    jnz(it.begin, T_NEAR);
    vcvtneps2bf16(Xbyak::Ymm(to), Xbyak::Zmm(from));
    L(it.end);
}

void RowEmitter::narrow_subnormals() {
    for (Narrowing& it : narrowings_) {
        L(it.begin);
        if (it.to != it.from) copy(it.to, it.from);
        round_to_bf16(it.to, 1);
        vpmovdw(Xbyak::Ymm(it.to), Xbyak::Zmm(it.to));
        jmp(it.end, T_NEAR);
    }
}

// Once for every cache line.
bool RowEmitter::begins_line(int operand, int lane) const {
    return lane * lanes_ * size_of(plan_.spec.operands[bytes(operand)].dtype) % 64 == 0;
}

void RowEmitter::fetch_ahead(int operand, const Place& from, int lane) {
    const bool is_tensor = plan_.spec.operands[bytes(operand)].shape == RowShape::tensor;
    if (plan_.spec.ahead == 0 || has_places(plan_.spec) || !is_tensor ||
        !begins_line(operand, lane))
        return;
    prefetcht0(ptr[from + bytes(plan_.spec.ahead)]);
}

void RowEmitter::place_at(const Xbyak::Reg64& to, const Xbyak::Reg64& entry) {
    plan_.spec.place_bytes == 4 ? movsxd(to, dword[entry]) : mov(to, ptr[entry]);
}

// Of a strip's row.
void RowEmitter::to_element(const Xbyak::Reg64& place) {
    imul(place, ptr[rdi + offsetof(RowArgs, distance)]);
    add(place, rsi);
}

// No hardware foresees where a row begins.
void RowEmitter::fetch_placed_row(int vectors) {
    lea(rax, ptr[rdx + plan_.spec.ahead * plan_.spec.place_bytes]);
    cmp(rax, ptr[rdi + offsetof(RowArgs, places_end)]);
    cmovae(rax, rdx);
    place_at(rax, rax);
    to_element(rax);
    for (std::size_t operand = 0; operand < plan_.spec.operands.size(); ++operand) {
        const RowOperand& it = plan_.spec.operands[operand];
        if (it.shape != RowShape::listed) continue;
        const auto size = static_cast<int>(size_of(it.dtype));
        const Place begin = pointers_.at(operand) + rax * size;
        const int strip = vectors * lanes_ * size;
        for (int offset = 0; offset < strip; offset += 64) prefetcht0(ptr[begin + offset]);
        prefetcht0(ptr[begin + (strip - 1)]);  // of rows that do not begin with a line
    }
}

// A row may be longer than the first cache.
void RowEmitter::fetch(const RowStep& step, int lane) {
    if (!begins_line(step.detail, lane)) return;
    const Place place = place_of(step, lane);
    if (!step.streams) return prefetcht0(ptr[place]);
    lea(rax, ptr[place]);
    add(rax, ptr[argument(step.detail) + offsetof(RowArgs::Operand, stride)]);
    prefetcht1(ptr[rax]);
}

// The bytes of a vector's bits, in rax. Overwrites rcx, which is where they are when they have been
// changed.
RowEmitter::Place RowEmitter::point_at_bits(const RowStep& step, int lane) {
    const Xbyak::Reg64 base = pointer_to(step.detail, rcx);
    mov(rax, rsi);
    shr(rax, 3);
    return base + rax + bytes(std::int64_t{lane} * lanes_ / 8 + step.offset);
}

// Zeros where bits are not set.
void RowEmitter::gate(const RowStep& step, int to, Lane lane) {
    const int x = in_register(step.from[0], lane.index, 0);
    const Place from = point_at_bits(step, lane.index);
    if (!avx512()) {
        movzx(eax, byte[from]);
        broadcast_register(1, eax);
        vpand(vector(1), vector(1), ptr[rip + lane_bits_]);
        vpcmpeqd(vector(1), vector(1), ptr[rip + lane_bits_]);
        return vandps(vector(to), vector(x), vector(1));
    }
    if (lane.masked) {
        Xbyak::Label short_one;
        lea(r11, ptr[from]);
        movzx(eax, byte[r11]);
        cmp(number_of_call(Number::tail), 8);
        jle(short_one);
        movzx(ecx, byte[r11 + 1]);
        shl(ecx, 8);
        or_(eax, ecx);
        L(short_one);
        kmovw(k2, eax);
    } else {
        kmovw(k2, ptr[from]);
    }
    vmovaps(vector(to) | k2 | T_z, vector(x));
}

void RowEmitter::store_bits(const RowStep& step, Lane lane) {
    constexpr std::uint8_t kNotLessEqual = 6;
    const int x = in_register(step.from[0], lane.index, 0);
    const Place to = point_at_bits(step, lane.index);
    if (!avx512()) {
        vcmpps(vector(1), vector(x), constant(0), kNotLessEqual);
        if (lane.masked) {
            load_tail_mask(0);
            vandps(vector(1), vector(1), vector(0));
        }
        lea(r11, ptr[to]);
        vmovmskps(eax, Xbyak::Ymm(1));
        mov(byte[r11], al);
        return;
    }
    vcmpps(lane.masked ? k2 | tail_mask() : k2, vector(x), constant(0), kNotLessEqual);
    if (!lane.masked) return kmovw(ptr[to], k2);
    Xbyak::Label short_one;
    lea(r11, ptr[to]);
    kmovw(eax, k2);
    mov(byte[r11], al);
    cmp(number_of_call(Number::tail), 8);
    jle(short_one);
    shr(eax, 8);
    mov(byte[r11 + 1], al);
    L(short_one);
}

// As they are loaded. Overwrites scratch from 1 on, and what is stored if it is narrow.
void RowEmitter::store_elements_at(const Place& to, int from, DType dtype, bool masked,
                                   bool exact) {
    if (masked && !avx512() && size_of(dtype) == 4) {
        load_tail_mask(1);
        vmaskmovps(ptr[to], vector(1), vector(from));
    } else if (masked && !avx512()) {
        lea(rax, ptr[to]);
        store_elements_at(stack_vector(plan_.stack_vectors + 1), from, dtype, false, exact);
        copy_part(false, dtype);
    } else if (dtype == DType::bf16 && exact) {
        store_exactly(to, from, masked);
    } else if (is_int8(dtype)) {
        store_as_bytes(to, 0, from, dtype, masked);
    } else {
        store_elements(to, from, dtype, masked, 1);
    }
}

void RowEmitter::copy_part(bool in, DType dtype) {
    Xbyak::Label next;
    const Place stack = stack_vector(plan_.stack_vectors + 1);
    mov(rcx, number_of_call(Number::tail));
    L(next);
    const bool is_half = size_of(dtype) == 2;
    const auto memory = is_half ? word[rax + rcx * 2 - 2] : byte[rax + rcx - 1];
    const auto passing = is_half ? word[stack + rcx * 2 - 2] : byte[stack + rcx - 1];
    const Xbyak::Reg element = is_half ? Xbyak::Reg(r11w) : Xbyak::Reg(r11b);
    mov(element, in ? memory : passing);
    mov(in ? passing : memory, element);
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
    if (step.op == RowOp::first) return load_first(step, to);
    const Place listed = rdx - sizeof(RowArgs::Listed);
    if (step.op == RowOp::number) {
        return broadcast(to, listed + offsetof(RowArgs::Listed, number));
    }
    if (step.op == RowOp::factor) {
        mov(rcx, ptr[rdi + offsetof(RowArgs, factors)]);
        movsxd(rax, dword[listed + offsetof(RowArgs::Listed, factor)]);
        return broadcast(to, rcx + rax * 4);
    }
    broadcast(to, pointer_to(step.detail, rax) + bytes(step.offset));
}

// Of an empty row there is none to read.
void RowEmitter::load_first(const RowStep& step, int to) {
    Xbyak::Label empty;
    const Vector v = vector(to);
    const Place from = pointer_to(step.detail, rax) + bytes(step.offset);
    const DType dtype = plan_.spec.operands[step.detail].dtype;
    zero(to);
    cmp(qword[rdi + offsetof(RowArgs, columns)], 0);
    je(empty);
    if (size_of(dtype) == 4) {
        broadcast(to, from);
    } else if (dtype == DType::bf16) {
        vpbroadcastw(v, ptr[from]);
        shift_words_left(to, 16);
    } else if (dtype == DType::f16) {
        vpbroadcastw(v, ptr[from]);
        widen_halves(to);
    } else {
        vpbroadcastb(v, ptr[from]);
        dtype == DType::s8 ? vpsrad(v, v, 24) : vpsrld(v, v, 24);
        words_to_floats(to);
    }
    L(empty);
}

void RowEmitter::store_single(const RowStep& step) {
    const int from = in_register(step.from[0], 0, 0);
    vmovss(dword[pointer_to(step.detail, rax) + bytes(step.offset)], Xbyak::Xmm(from));
}

}  // namespace dlprim
