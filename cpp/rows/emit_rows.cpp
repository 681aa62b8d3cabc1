#include "rows/emit_rows.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "rows/row_emitter.h"

namespace dlprim {
namespace {

// Registers that point at operands; the pointers of the others are in the frame. In the last ones
// programs with a list have a row's count, the end and the begin of its entries, which rdx goes
// through, and the element at which a listed row begins.
constexpr std::array kPointers = {8, 9, 10, 3, 12, 13, 14, 15};
constexpr std::size_t kPointersBesideList = kMostListedOperands;

// Vectors that an accumulator of a sum takes before it is emptied: the error of a long row's sum
// grows with the chains and not with the elements.
constexpr int kChain = 64;
// Of all passes, for programs that have nests for rows of one vector: three more times their code.
constexpr std::size_t kMostStepsOfShortRows = 64;

int entry_bytes(const RowSpec& spec) {
    return has_places(spec) ? spec.place_bytes : static_cast<int>(sizeof(RowArgs::Listed));
}

int frame_bytes(const RowPlan& plan) {
    return 64 * (plan.stack_vectors + 3) + 8 * (kMostRowOperands + plan.kept_rows);
}

}  // namespace

RowEmitter::RowEmitter(const RowPlan& plan, void* buffer)
    : ElementAssembler(plan.isa, buffer, kMostCodeBytes),
      plan_(plan),
      lanes_(vector_file(plan.isa).bytes / 4) {
    pointers_.assign(at(kMostRowOperands + plan.kept_rows), rax);
    std::size_t next = 0;
    const std::size_t most = plan.is_listed ? kPointersBesideList : kPointers.size();
    for (const RowShape shape :
         {RowShape::listed, RowShape::tensor, RowShape::bits, RowShape::column, RowShape::row}) {
        for (std::size_t i = 0; i < plan.spec.operands.size(); ++i) {
            const bool is_used = plan.spec.operands[i].shape == shape;
            if (is_used && next < most) pointers_.at(i) = Xbyak::Reg64(kPointers.at(next++));
        }
    }
    for (std::size_t i = kMostRowOperands; i < pointers_.size() && next < most; ++i) {
        pointers_.at(i) = Xbyak::Reg64(kPointers.at(next++));
    }
}

std::vector<std::uint8_t> RowEmitter::emit() {
    prologue();
    single_steps(plan_.once);
    if (plan_.is_listed) {
        rows_of_lists();
    } else if (plan_.by_strips) {
        strips();
    } else {
        rows_by_length();
    }
    epilogue();
    narrow_subnormals();
    emit_rare_calls();
    emit_constants();
    emit_upper_halves();
    if (!avx512()) {
        align(32);
        L(partial_masks_);
        for (int lane = 0; lane < 2 * lanes_; ++lane) dd(lane < lanes_ ? ~0U : 0U);
        L(lane_bits_);
        for (int lane = 0; lane < lanes_; ++lane) dd(1U << lane);
    }
    return {getCode(), getCode() + getSize()};
}

void RowEmitter::prologue() {
    push(rbx);
    push(rbp);
    for (const int saved : {12, 13, 14, 15}) push(Xbyak::Reg64(saved));
    mov(rbp, rsp);
    sub(rsp, frame_bytes(plan_));
    and_(rsp, -64);
    ends_of_row();
    prepare_widening();
    point_at_operands();
    point_at_scratch();
}

void RowEmitter::epilogue() {
    mov(rsp, rbp);
    for (const int saved : {15, 14, 13, 12}) pop(Xbyak::Reg64(saved));
    pop(rbp);
    pop(rbx);
    if (goes_around_caches(plan_.spec)) sfence();
    vzeroupper();
    ret();
}

// Where whole groups of vectors end, and the elements of the partial vector.
void RowEmitter::ends_of_row() {
    mov(rax, ptr[rdi + offsetof(RowArgs, columns)]);
    const int step = plan_.unroll * lanes_;
    mov(rcx, rax);
    if (std::has_single_bit(static_cast<unsigned>(step))) {
        and_(rcx, -step);
    } else {
        xor_(edx, edx);
        mov(r8d, step);
        div(r8);
        sub(rcx, rdx);
    }
    mov(number_of_call(Number::main_end), rcx);
    mov(rcx, ptr[rdi + offsetof(RowArgs, columns)]);
    and_(ecx, lanes_ - 1);
    mov(number_of_call(Number::tail), rcx);
    if (avx512()) {
        mov(eax, 1);
        shl(eax, cl);
        sub(eax, 1);
        kmovw(tail_mask(), eax);
        mov(eax, 0x5555);
        kmovw(k3, eax);
        return;
    }
    lea(rax, ptr[rip + partial_masks_]);
    neg(rcx);
    vmovups(vector(0), ptr[rax + rcx * 4 + static_cast<std::size_t>(lanes_ * 4)]);
    vmovups(ptr[stack_vector(plan_.stack_vectors)], vector(0));
    vpxor(vector(0), vector(0), vector(0));
    vmovups(ptr[stack_vector(plan_.stack_vectors + 1)], vector(0));
}

void RowEmitter::point_at_operands() {
    for (int i = 0; i < static_cast<int>(plan_.spec.operands.size()); ++i) {
        const Xbyak::Reg64 pointer = pointers_.at(at(i));
        mov(pointer, ptr[argument(i)]);
        if (pointer == rax) mov(pointer_of(i), rax);
    }
}

// Rows of scratch have room for the whole vector in which a row ends.
void RowEmitter::point_at_scratch() {
    if (plan_.kept_rows == 0) return;
    mov(rcx, ptr[rdi + offsetof(RowArgs, columns)]);
    lea(rcx, ptr[rcx * 4 + kRowScratchSlack * 4]);
    and_(rcx, -64);
    mov(rax, ptr[rdi + offsetof(RowArgs, scratch)]);
    for (int row = 0; row < plan_.kept_rows; ++row) {
        const Xbyak::Reg64 pointer = pointers_.at(at(kMostRowOperands + row));
        if (pointer == rax) {
            mov(pointer_of(kMostRowOperands + row), rax);
        } else {
            mov(pointer, rax);
        }
        add(rax, rcx);
    }
}

void RowEmitter::next_row() {
    for (int i = 0; i < static_cast<int>(plan_.spec.operands.size()); ++i) {
        const RowShape shape = plan_.spec.operands[at(i)].shape;
        const bool moves = shape == RowShape::tensor || shape == RowShape::bits;
        if (!moves && shape != RowShape::row) continue;
        const auto stride = ptr[argument(i) + sizeof(void*)];
        const Xbyak::Reg64 pointer = pointers_.at(at(i));
        if (pointer == rax) {
            mov(rax, stride);
            add(pointer_of(i), rax);
        } else {
            add(pointer, stride);
        }
    }
}

// In rows of one vector what is taken along them takes longer than all else, so short programs have
// nests for them without loops along the row: of a whole vector, as masks are slow on AVX2, of
// less, and of at most half a vector, where less is added up.
void RowEmitter::rows_by_length() {
    bool waits = false;
    std::size_t steps = 0;
    for (const RowPass& pass : plan_.passes) {
        waits = waits || !pass.reductions.empty();
        steps += pass.body.size();
    }
    waits = waits && steps <= kMostStepsOfShortRows;
    Xbyak::Label others, done;
    const auto rows_of_one_vector = [&](bool masked, int columns) {
        xor_(esi, esi);
        passes_of_rows([&](const RowPass& pass) {
            if (pass.body.empty()) return;
            start_reductions(pass, 0, 1);
            body(pass, 1, masked);
            finish_reductions(pass, columns);
        });
        jmp(done, T_NEAR);
    };
    if (waits) {
        Xbyak::Label shorter, half;
        mov(rax, ptr[rdi + offsetof(RowArgs, columns)]);
        sub(rax, 1);
        jl(others, T_NEAR);
        cmp(rax, lanes_ - 1);
        jg(others, T_NEAR);
        jl(shorter, T_NEAR);
        rows_of_one_vector(false, lanes_);
        L(shorter);
        cmp(rax, lanes_ / 2);
        jl(half, T_NEAR);
        rows_of_one_vector(true, lanes_);
        L(half);
        rows_of_one_vector(true, lanes_ / 2);
    }
    L(others);
    passes_of_rows([&](const RowPass& pass) {
        if (pass.body.empty()) return;
        along_row(pass, [&](int vectors, bool masked) { body(pass, vectors, masked); });
        finish_reductions(pass, lanes_);
    });
    L(done);
}

// How many rows are left is in rdx.
template <class Body>
void RowEmitter::passes_of_rows(const Body& body) {
    Xbyak::Label next, done;
    mov(rdx, ptr[rdi + offsetof(RowArgs, rows)]);
    test(rdx, rdx);
    jle(done, T_NEAR);
    L(next);
    for (const RowPass& pass : plan_.passes) {
        single_steps(pass.before);
        body(pass);
    }
    next_row();
    dec(rdx);
    jnz(next, T_NEAR);
    L(done);
}

// Behind the last whole group: the powers of two below it, downwards, and a partial vector.
template <class Body>
void RowEmitter::along_row(const RowPass& pass, const Body& body) {
    xor_(esi, esi);
    start_reductions(pass, 0, std::max(1, plan_.unroll / 2));
    main_loop(pass, body);
    const auto most_left = static_cast<unsigned>(plan_.unroll - 1);
    for (int vectors = static_cast<int>(std::bit_floor(most_left)); vectors >= 1; vectors /= 2) {
        Xbyak::Label skip;
        lea(rax, ptr[rsi + static_cast<std::size_t>(vectors * lanes_)]);
        cmp(rax, ptr[rdi + offsetof(RowArgs, columns)]);
        jg(skip, T_NEAR);
        body(vectors, false);
        add(rsi, vectors * lanes_);
        L(skip);
        for (const RowReduction& it : pass.reductions) combine_lanes(it, vectors / 2);
    }
    Xbyak::Label done;
    cmp(rsi, ptr[rdi + offsetof(RowArgs, columns)]);
    jge(done, T_NEAR);
    body(1, true);
    L(done);
}

template <class Body>
void RowEmitter::main_loop(const RowPass& pass, const Body& body) {
    Xbyak::Label chain, next, only_one, done;
    const bool sums = std::any_of(pass.reductions.begin(), pass.reductions.end(),
                                  [](const RowReduction& it) { return is_sum(it.op); });
    const int step = plan_.unroll * lanes_;
    cmp(rsi, number_of_call(Number::main_end));
    jge(done, T_NEAR);
    start_reductions(pass, std::max(1, plan_.unroll / 2), plan_.unroll);
    // Of one chain there is no total.
    const auto skip_if_only_one = [&](const Xbyak::Label& to) {
        cmp(number_of_call(Number::main_end), kChain * step);
        jle(to, T_NEAR);
    };
    if (sums) {
        skip_if_only_one(chain);
        move_totals(pass, true);
    }
    L(chain);
    if (sums) {
        lea(rax, ptr[rsi + static_cast<std::size_t>(kChain * step)]);
        mov(rcx, number_of_call(Number::main_end));
        cmp(rax, rcx);
        cmovg(rax, rcx);
        mov(number_of_call(Number::limit), rax);
    }
    const Number end = sums ? Number::limit : Number::main_end;
    L(next);
    body(plan_.unroll, false);
    add(rsi, step);
    cmp(rsi, number_of_call(end));
    jl(next, T_NEAR);
    if (sums) {
        skip_if_only_one(only_one);
        empty_sums(pass);
        cmp(rsi, number_of_call(Number::main_end));
        jl(chain, T_NEAR);
        move_totals(pass, false);
        L(only_one);
    }
    for (const RowReduction& it : pass.reductions) combine_lanes(it, plan_.unroll / 2);
    L(done);
}

// Along a row that has no sums.
void RowEmitter::strips() {
    along_row({}, [&](int vectors, bool masked) { strip(vectors, masked); });
}

// Strips are inside of rows, as these may be far apart.
void RowEmitter::rows_of_lists() {
    Xbyak::Label next, done;
    mov(rcx, ptr[rdi + offsetof(RowArgs, rows)]);
    mov(r12, ptr[rdi + offsetof(RowArgs, counts)]);
    mov(r14,
        ptr[rdi + (has_places(plan_.spec) ? offsetof(RowArgs, places) : offsetof(RowArgs, list))]);
    lea(rcx, ptr[r12 + rcx * sizeof(std::int64_t)]);
    mov(number_of_call(Number::limit), rcx);
    cmp(r12, rcx);
    jge(done, T_NEAR);
    L(next);
    imul(r13, ptr[r12], entry_bytes(plan_.spec));
    add(r13, r14);
    single_steps(plan_.passes[1].before);
    strips();
    next_row();
    mov(r14, r13);
    add(r12, sizeof(std::int64_t));
    cmp(r12, number_of_call(Number::limit));
    jl(next, T_NEAR);
    L(done);
}

void RowEmitter::strip(int vectors, bool masked) {
    if (plan_.is_listed) {
        listed_rows(vectors, masked);
        return body(plan_.passes[1], vectors, masked);
    }
    point_at_operands();
    strip_columns(vectors, masked, false);
    passes_of_rows([&](const RowPass& pass) { body(pass, vectors, masked); });
    strip_columns(vectors, masked, true);
}

void RowEmitter::listed_rows(int vectors, bool masked) {
    Xbyak::Label next, done;
    for (const RowStep& step : plan_.carried) {
        for (int i = 0; i < vectors; ++i) load_constant(register_of(step.to, i), step.from[0].bits);
    }
    mov(rdx, r14);
    cmp(rdx, r13);
    jge(done, T_NEAR);
    L(next);
    if (has_places(plan_.spec)) {
        if (plan_.spec.ahead != 0) fetch_placed_row(vectors);
        place_at(r15, rdx);
        xor_(eax, eax);
        cmp(r15, ptr[rdi + offsetof(RowArgs, extent)]);
        cmovae(r15, rax);
        to_element(r15);
    } else {
        mov(r15, ptr[rdx]);
        add(r15, rsi);
    }
    add(rdx, entry_bytes(plan_.spec));
    single_steps(plan_.passes.front().before);
    body(plan_.passes.front(), vectors, masked);
    cmp(rdx, r13);
    jl(next, T_NEAR);
    L(done);
}

// Sums go on from what stands in memory, and return there at the end.
void RowEmitter::strip_columns(int vectors, bool masked, bool at_end) {
    for (const RowStep& step : plan_.columns) {
        if (at_end && step.op == RowOp::load) continue;
        for (int i = 0; i < vectors; ++i) {
            const int index = register_of(step.to, i);
            if (!at_end) {
                load_elements_of(step.detail, step.offset, index, {i, masked});
            } else {
                store_elements_at(place_of(step, i), index, DType::f32, masked);
            }
        }
    }
}

void RowEmitter::body(const RowPass& pass, int vectors, bool masked) {
    vectors_ = vectors;
    masked_ = masked;
    compared_ = {};
    if (!plan_.takes_turns) {
        for (int i = 0; i < vectors; ++i) {
            for (const RowStep& step : pass.body) body_step(step, {i, masked});
        }
        return;
    }
    for (const RowStep& step : pass.body) {
        if (step.op == RowOp::activation || step.op == RowOp::exponential) {
            curve_in_turns(step, vectors);
            continue;
        }
        for (int i = 0; i < vectors; ++i) body_step(step, {i, masked});
    }
}

void RowEmitter::body_step(const RowStep& step, Lane lane) {
    if (step.op != RowOp::select) compared_ = {};
    if (is_reduction(step.op)) return accumulate(step, lane);
    const int to = register_of(step.to, lane.index);
    switch (step.op) {
        case RowOp::load: return load_elements_of(step.detail, step.offset, to, lane);
        case RowOp::store: return store_tensor(step, lane);
        case RowOp::add_to_column: return add_to_column(step, lane);
        case RowOp::fetch: return fetch(step, lane.index);
        case RowOp::add_chosen: return add_chosen(step, to, lane);
        case RowOp::gate: return gate(step, to, lane);
        case RowOp::store_bits: return store_bits(step, lane);
        case RowOp::carry: return copy(to, in_register(step.from[0], lane.index, 0));
        case RowOp::keep:
            return vmovups(step.to.kind == RowPlace::Kind::stack
                               ? ptr[stack_vector(step.to.index)]
                               : ptr[kept_place(step.detail, lane.index)],
                           vector(register_of(step.from[0], lane.index)));
        case RowOp::reload: return vmovups(vector(to), ptr[kept_place(step.detail, lane.index)]);
        default: return operation(step, to, lane.index);
    }
}

// Values that have no register are made in one that no vector is in meanwhile.
void RowEmitter::single_steps(const std::vector<RowStep>& steps) {
    for (const RowStep& step : steps) {
        compared_ = {};
        if (step.op == RowOp::store) {
            store_single(step);
            continue;
        }
        if (step.op == RowOp::constant) {
            load_constant(step.to.index, step.from[0].bits);
            continue;
        }
        const bool on_stack = step.to.kind == RowPlace::Kind::stack;
        const int to = on_stack ? plan_.registers.vectors : step.to.index;
        inputs_of(step.op) == 0 ? load_single(step, to) : operation(step, to, 0);
        if (on_stack) vmovups(ptr[stack_vector(step.to.index)], vector(to));
    }
}

std::vector<std::uint8_t> emit_rows(const RowPlan& plan) {
    const auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(RowEmitter::kMostCodeBytes);
    return RowEmitter(plan, buffer.get()).emit();
}

}  // namespace dlprim
