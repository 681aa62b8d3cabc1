#include "streams/emit_streams.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>

#include "jit/element_assembler.h"

namespace dlprim {
namespace {

// Quadwords of two registers, the second one's from 8 on, as lines of constants.
constexpr std::array<std::uint8_t, 64> quadwords(const std::array<std::uint8_t, 8>& places) {
    std::array<std::uint8_t, 64> made = {};
    for (std::size_t i = 0; i < places.size(); ++i) made.at(8 * i) = places.at(i);
    return made;
}
constexpr std::array kQuarters = {quadwords({0, 1, 8, 9, 2, 3, 10, 11}),
                                  quadwords({4, 5, 12, 13, 6, 7, 14, 15})};

class StreamEmitter : ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = std::size_t{512} << 10;

    StreamEmitter(const StreamSpec& spec, Isa isa, void* buffer)
        : ElementAssembler(isa, buffer, kMostCodeBytes),
          spec_(spec),
          pairs_(spec.vectors == DType::bf16),
          splits_(splits_halves(spec, isa)),
          lanes_(vector_bytes() / (pairs_ || splits_ ? 2 : 4)),
          columns_(static_cast<int>(spec.columns)),
          vectors_((columns_ + lanes_ - 1) / lanes_ * (splits_ ? 2 : 1)),
          element_(static_cast<int>(size_of(spec.matrix))) {}

    std::vector<std::uint8_t> emit() {
        prologue();
        spec_.way == StreamSpec::Way::along ? along() : across();
        pop(rbp);
        pop(rbx);
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
    int row_lines() const { return (row_bytes() + 63) / 64; }
    int pitch() const { return static_cast<int>(stream_pitch(columns_)) * (pairs_ ? 2 : kFloat); }
    int numbers_of(int vector) const { return vector * static_cast<int>(spec_.distance) * kFloat; }
    int upper_halves() const { return 31; }
    bool is_tail(int index) const { return (index + 1) * lanes_ > columns_; }

    void prologue() {
        push(rbx);
        push(rbp);
        mov(row_, field(offsetof(StreamArgs, matrix)));
        mov(step_, field(offsetof(StreamArgs, step)));
        mov(left_, field(offsetof(StreamArgs, rows)));
        mov(numbers_, field(offsetof(StreamArgs, numbers)));
        mov(to_, field(offsetof(StreamArgs, vectors)));
        lea(three_steps_, ptr[step_ + step_ * 2]);
        imul(ahead_, step_, std::max(kBytesAhead / row_bytes(), 1));
        if (splits_) load_constant(upper_halves(), 0xffff0000);
        const int tail = columns_ % lanes_;
        if (tail == 0) return;
        if (lanes_ > vector_bytes() / kFloat) {
            mov(eax, (1U << tail) - 1);
            kmovd(tail_mask(), eax);
        } else {
            set_tail(tail);
        }
    }

    // Where rows are split, of neighbours the first ones in even registers, the others in odd ones:
    // no shuffle, which would take the place of a product.
    void load_part(int to, const Xbyak::RegExp& row, int index) {
        const int place = splits_ ? index / 2 : index;
        const auto from = row + place * lanes_ * element_;
        const bool masked = is_tail(place);
        if (!pairs_ && !splits_) return load_elements(to, from, spec_.matrix, masked);
        const Vector v = vector(to);
        masked ? vmovdqu16(v | tail_mask() | T_z, ptr[from]) : vmovups(v, ptr[from]);
        if (!splits_) return;
        index % 2 == 0 ? vpslld(v, v, 16) : vpandd(v, v, vector(upper_halves()));
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
        point_at(group);
        for (int i = 0; i < group * spec_.count; ++i) zero(i);
        int fetched = 0;
        for (int index = 0; index < vectors_; ++index) {
            const int lines = group * row_lines();
            for (; fetched * vectors_ < (index + 1) * lines; ++fetched) fetch_line(fetched);
            add_products(index, group);
        }
        add_across(group * spec_.count);
        for (int v = 0; v < spec_.count; ++v) store_sums(v, group);
        add(numbers_, group * kFloat);
        lea(row_, ptr[row_of(group - 1)]);
        add(row_, step_);
        sub(left_, group);
        jge(next, T_NEAR);
        L(done);
        add(left_, group);
    }

    // At every fourth row of a group, and at the first of those that are fetched.
    void point_at(int group) {
        for (int row = 4; row < group; row += 4) {
            lea(fourth_.at(static_cast<std::size_t>(row / 4)),
                ptr[fourth_.at(static_cast<std::size_t>(row / 4 - 1)) + step_ * 4]);
        }
        lea(fetched_, ptr[row_ + ahead_]);
    }
    Xbyak::RegExp row_of(int row) const {
        const Reg& from = fourth_.at(static_cast<std::size_t>(row / 4));
        if (row % 4 == 0) return from;
        return row % 4 == 3 ? from + three_steps_ : from + step_ * (row % 4);
    }

    // One after the other of those of a group.
    void fetch_line(int line) {
        if (line > 0 && line % row_lines() == 0) add(fetched_, step_);
        prefetcht0(ptr[fetched_ + line % row_lines() * 64]);
    }

    int sum_of(int vector, int row, int group) const { return vector * group + row; }
    // Behind the sums: parts of up to four rows, or of one after the other, and of a vector.
    int part() const { return avx512() ? 16 : 8; }
    int other() const { return part() + 4; }
    int lower() const { return part() + 1; }
    int upper() const { return part() + 2; }

    // A part of all vectors times that of all rows of a group.
    void add_products(int index, int group) {
        const int together = std::min(group, 4);
        for (int first = 0; first < group; first += together) {
            for (int row = 0; row < together; ++row) {
                load_part(part() + row, row_of(first + row), index);
            }
            for (int v = 0; v < spec_.count; ++v) {
                const auto with = to_ + v * pitch() + index * vector_bytes();
                vmovups(vector(other()), ptr[with]);
                for (int row = 0; row < together; ++row) {
                    const Vector sum = vector(sum_of(v, first + row, group));
                    const Vector its = vector(part() + row);
                    pairs_ ? vdpbf16ps(sum, its, vector(other()))
                           : vfmadd231ps(sum, its, vector(other()));
                }
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
        const int unit = splits_ ? 2 : 1;
        const int sums = (avx512() ? 32 : 16) - 1 - spec_.count - (splits_ ? 1 : 0);
        const int most = std::min(sums / spec_.count, kMostStrip) / unit;
        const int strips = (vectors_ / unit + most - 1) / most;
        return (vectors_ / unit + strips - 1) / strips * unit;
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
            load_part(part, row_, index);
            for (int v = 0; v < spec_.count; ++v) {
                fma(v * width + index - first, part, number + v);
            }
        }
        for (int line = 0; line < row_lines() && first == 0; ++line) {
            prefetcht0(ptr[row_ + ahead_ + line * 64]);
        }
        add(row_, step_);
        add(numbers_, kFloat);
        dec(left_);
        jnz(next, T_NEAR);
        L(done);
        for (int v = 0; v < spec_.count; ++v) {
            for (int index = first; index < end; ++index) {
                const int sum = v * width + index - first;
                if (splits_ && index % 2 == 0) join_halves(sum, part);
                vmovups(ptr[to_ + v * pitch() + index * vector_bytes()], vector(sum));
            }
        }
    }

    // Neighbours, whose first ones are in a register and the others in the next, side by side.
    // Overwrites two more from `free` on.
    void join_halves(int first, int free) {
        const Vector even = vector(first), odd = vector(first + 1);
        const Vector low = vector(free), other = vector(free + 1);
        vunpcklps(low, even, odd);
        vunpckhps(other, even, odd);
        // A quarter of one follows a quarter of the other.
        vmovups(even, ptr[line(kQuarters[0])]);
        vpermi2q(even, low, other);
        vmovups(odd, ptr[line(kQuarters[1])]);
        vpermi2q(odd, low, other);
    }

    StreamSpec spec_;
    bool pairs_;
    bool splits_;
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
    Reg three_steps_ = r11;
    // Of rows of a group, whose first is at row_; the arguments are read by then.
    std::array<Reg, 4> fourth_ = {r8, rax, rbx, rdi};
    Reg fetched_ = rbp;
};

}  // namespace

std::vector<std::uint8_t> emit_stream(const StreamSpec& spec, Isa isa) {
    const auto buffer =
        std::make_unique_for_overwrite<std::uint8_t[]>(StreamEmitter::kMostCodeBytes);
    return StreamEmitter(spec, isa, buffer.get()).emit();
}

}  // namespace dlprim
