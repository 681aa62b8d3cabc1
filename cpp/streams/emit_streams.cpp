#include "streams/emit_streams.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>

#include "jit/element_assembler.h"

namespace dlprim {
namespace {

class StreamEmitter : ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = std::size_t{512} << 10;

    StreamEmitter(const StreamSpec& spec, Isa isa, void* buffer)
        : ElementAssembler(isa, buffer, kMostCodeBytes),
          spec_(spec),
          pairs_(spec.vectors == DType::bf16),
          lanes_(vector_bytes() / (pairs_ ? 2 : 4)),
          columns_(static_cast<int>(spec.columns)),
          vectors_((columns_ + lanes_ - 1) / lanes_),
          element_(static_cast<int>(size_of(spec.matrix))) {}

    std::vector<std::uint8_t> emit() {
        prologue();
        spec_.way == StreamSpec::Way::along ? along() : across();
        vzeroupper();
        ret();
        emit_constants();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    static constexpr int kBytesAhead = 4096;  // that are on their way, in whole rows
    static constexpr int kMostStrip = 8;      // vectors of a row whose sums have registers
    static constexpr int kFloat = 4;

    Xbyak::Address field(std::size_t offset) const { return qword[args_ + offset]; }
    int row_bytes() const { return columns_ * element_; }
    int pitch() const { return static_cast<int>(stream_pitch(columns_)) * (pairs_ ? 2 : kFloat); }
    int numbers_of(int vector) const { return vector * static_cast<int>(spec_.distance) * kFloat; }
    bool is_tail(int index) const { return (index + 1) * lanes_ > columns_; }

    void prologue() {
        mov(row_, field(offsetof(StreamArgs, matrix)));
        mov(step_, field(offsetof(StreamArgs, step)));
        mov(left_, field(offsetof(StreamArgs, rows)));
        mov(numbers_, field(offsetof(StreamArgs, numbers)));
        mov(to_, field(offsetof(StreamArgs, vectors)));
        imul(ahead_, step_, std::max(kBytesAhead / row_bytes(), 1));
        const int tail = columns_ % lanes_;
        if (tail == 0) return;
        if (pairs_) {
            mov(eax, (1U << tail) - 1);
            kmovd(tail_mask(), eax);
        } else {
            set_tail(tail);
        }
    }

    void fetch_row() {
        for (int line = 0; line < row_bytes(); line += 64) prefetcht0(ptr[row_ + ahead_ + line]);
    }

    void load_part(int to, int index) {
        const auto from = row_ + index * lanes_ * element_;
        if (!pairs_) return load_elements(to, from, spec_.matrix, is_tail(index));
        const Vector v = vector(to);
        is_tail(index) ? vmovdqu16(v | tail_mask() | T_z, ptr[from]) : vmovups(v, ptr[from]);
    }

    // ---------------------------------------------------------------- along

    // Groups of rows whose sums fill the lanes of a register, and single rows.
    void along() {
        const int sums = vector_bytes() / kFloat;
        const auto group = static_cast<int>(
            std::bit_floor(static_cast<unsigned>(std::max(sums / spec_.count, 1))));
        loop_of_rows(group);
        if (group > 1) loop_of_rows(1);
    }

    void loop_of_rows(int group) {
        Xbyak::Label next, done;
        sub(left_, group);
        jl(done, T_NEAR);
        L(next);
        for (int row = 0; row < group; ++row) {
            sum_row(row, group);
            fetch_row();
            add(row_, step_);
        }
        add_across(group * spec_.count);
        for (int v = 0; v < spec_.count; ++v) store_sums(v, group);
        add(numbers_, group * kFloat);
        sub(left_, group);
        jge(next, T_NEAR);
        L(done);
        add(left_, group);
    }

    int sum_of(int vector, int row, int group) const { return vector * group + row; }
    // Behind the sums.
    int part() const { return avx512() ? 16 : 8; }
    int lower() const { return part() + 1; }
    int upper() const { return part() + 2; }

    void sum_row(int row, int group) {
        for (int v = 0; v < spec_.count; ++v) zero(sum_of(v, row, group));
        for (int index = 0; index < vectors_; ++index) {
            load_part(part(), index);
            for (int v = 0; v < spec_.count; ++v) {
                const Vector sum = vector(sum_of(v, row, group));
                const auto with = ptr[to_ + v * pitch() + index * vector_bytes()];
                pairs_ ? vdpbf16ps(sum, vector(part()), with)
                       : vfmadd231ps(sum, vector(part()), with);
            }
        }
    }

    // The sum of the lanes of each of so many registers, in the lanes of the first one: two by two
    // registers share one, and what has no other is added to itself.
    void add_across(int count) {
        const int rounds = avx512() ? 4 : 3;
        for (int round = 0; round < rounds; ++round) {
            int made = 0;
            for (int i = 0; i < count; i += 2, ++made) {
                join(round, made, i, std::min(i + 1, count - 1));
            }
            count = made;
        }
    }

    void join(int round, int to, int first, int second) {
        const Vector low = vector(lower()), high = vector(upper());
        const Vector a = vector(first), b = vector(second);
        if (round == 0) {
            vunpcklps(low, a, b);
            vunpckhps(high, a, b);
        } else if (round == 1) {
            vunpcklpd(low, a, b);
            vunpckhpd(high, a, b);
        } else if (avx512()) {
            vshuff32x4(Xbyak::Zmm(lower()), Xbyak::Zmm(first), Xbyak::Zmm(second), 0x88);
            vshuff32x4(Xbyak::Zmm(upper()), Xbyak::Zmm(first), Xbyak::Zmm(second), 0xdd);
        } else {
            vperm2f128(Xbyak::Ymm(lower()), Xbyak::Ymm(first), Xbyak::Ymm(second), 0x20);
            vperm2f128(Xbyak::Ymm(upper()), Xbyak::Ymm(first), Xbyak::Ymm(second), 0x31);
        }
        vaddps(vector(to), low, high);
    }

    // Those of a vector lie next to each other.
    void store_sums(int vector, int group) {
        const auto to = ptr[numbers_ + numbers_of(vector)];
        const int first = vector * group;
        const auto quarter = static_cast<std::uint8_t>(first / 4);
        if (group == 16) return vmovups(to, Xbyak::Zmm(0));
        if (group == 8 && first == 0) return vmovups(to, Xbyak::Ymm(0));
        if (group == 8) return vextractf64x4(to, Xbyak::Zmm(0), 1);
        int from = 0;
        if (quarter > 0) {
            from = 1;
            avx512() ? vextractf32x4(Xbyak::Xmm(1), Xbyak::Zmm(0), quarter)
                     : vextractf128(Xbyak::Xmm(1), Xbyak::Ymm(0), quarter);
        }
        if (group == 4) return vmovups(to, Xbyak::Xmm(from));
        const int place = first % 4;
        if (group == 1) return vextractps(to, Xbyak::Xmm(from), static_cast<std::uint8_t>(place));
        place == 0 ? vmovlps(to, Xbyak::Xmm(from)) : vmovhps(to, Xbyak::Xmm(from));
    }

    // ---------------------------------------------------------------- across

    // Registers: sums, a part of a row, a number for each vector.
    int strip_vectors() const {
        const int sums = (avx512() ? 32 : 16) - 1 - spec_.count;
        const int most = std::min(sums / spec_.count, kMostStrip);
        const int strips = (vectors_ + most - 1) / most;
        return (vectors_ + strips - 1) / strips;
    }

    // Strips of columns outside, rows inside: the first strip brings whole rows.
    void across() {
        const int strip = strip_vectors();
        for (int first = 0; first < vectors_; first += strip) {
            mov(row_, field(offsetof(StreamArgs, matrix)));
            if (first > 0) {
                mov(left_, field(offsetof(StreamArgs, rows)));
                mov(numbers_, field(offsetof(StreamArgs, numbers)));
            }
            add_rows(first, std::min(first + strip, vectors_));
        }
    }

    void add_rows(int first, int end) {
        const int width = end - first, sums = width * spec_.count;
        const int part = sums, number = sums + 1;
        for (int i = 0; i < sums; ++i) zero(i);
        Xbyak::Label next, done;
        test(left_, left_);
        jle(done, T_NEAR);
        L(next);
        for (int v = 0; v < spec_.count; ++v) broadcast(number + v, numbers_ + numbers_of(v));
        for (int index = first; index < end; ++index) {
            load_part(part, index);
            for (int v = 0; v < spec_.count; ++v) {
                fma(v * width + index - first, part, number + v);
            }
        }
        if (first == 0) fetch_row();
        add(row_, step_);
        add(numbers_, kFloat);
        dec(left_);
        jnz(next, T_NEAR);
        L(done);
        for (int v = 0; v < spec_.count; ++v) {
            for (int index = first; index < end; ++index) {
                vmovups(ptr[to_ + v * pitch() + index * vector_bytes()],
                        vector(v * width + index - first));
            }
        }
    }

    StreamSpec spec_;
    bool pairs_;
    int lanes_;  // elements of a row in a register
    int columns_;
    int vectors_;  // of a row
    int element_;

    Reg args_ = rdi;
    Reg row_ = r8;
    Reg step_ = r9;
    Reg left_ = rcx;  // rows
    Reg numbers_ = rdx;
    Reg to_ = rsi;  // vectors
    Reg ahead_ = r10;
};

}  // namespace

std::vector<std::uint8_t> emit_stream(const StreamSpec& spec, Isa isa) {
    const auto buffer =
        std::make_unique_for_overwrite<std::uint8_t[]>(StreamEmitter::kMostCodeBytes);
    return StreamEmitter(spec, isa, buffer.get()).emit();
}

}  // namespace dlprim
