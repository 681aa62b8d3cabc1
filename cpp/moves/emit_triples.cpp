#include <array>
#include <cstddef>

#include "jit/vector_assembler.h"
#include "moves/emit_moves.h"

namespace dlprim {
namespace {

// Three and the lanes of a vector have no common divisor. So of three vectors of triples every
// lane has each part once, and each part comes from lanes that no other one needs: parts are
// chosen by lane and put in order by one permutation.
class TripleEmitter : VectorAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = 8192;

    TripleEmitter(const MoveSpec& spec, Isa isa, void* buffer)
        : VectorAssembler(isa, buffer, kMostCodeBytes),
          unit_(spec.unit),
          joins_(spec.way == MoveSpec::Way::join_three) {}

    std::vector<std::uint8_t> emit() {
        mov(line_src_, field(offsetof(MoveArgs, src)));
        mov(line_dst_, field(offsetof(MoveArgs, dst)));
        mov(lines_, field(offsetof(MoveArgs, lines)));
        mov(row_, field(joins_ ? offsetof(MoveArgs, src_row) : offsetof(MoveArgs, dst_row)));
        for (int part = 0; part < 3; ++part) {
            vmovups(triple(order_of(part)), ptr[rip + orders_.at(static_cast<std::size_t>(part))]);
            std::uint32_t lanes = 0;
            for (int lane = part; lane < triple_lanes(); lane += 3) lanes |= 1U << lane;
            lanes_.at(static_cast<std::size_t>(part)) = lanes;
            if (unit_ == 1) {
                vmovups(triple(mask_of(part)),
                        ptr[rip + masks_.at(static_cast<std::size_t>(part))]);
            }
            if (!avx512() || unit_ == 1) continue;
            mov(place_.cvt32(), lanes);
            kmovd(Xbyak::Opmask(part + 1), place_.cvt32());
        }
        Xbyak::Label line, next;
        L(line);
        mov(src_, line_src_);
        mov(dst_, line_dst_);
        mov(count_, field(offsetof(MoveArgs, count)));
        L(next);
        for (int done = 0; done < kTileSide; done += triple_bytes()) {
            joins_ ? join(done) : split(done);
        }
        add(src_, field(offsetof(MoveArgs, src_step)));
        add(dst_, field(offsetof(MoveArgs, dst_step)));
        dec(count_);
        jnz(next, T_NEAR);
        add(line_src_, field(offsetof(MoveArgs, src_line)));
        add(line_dst_, field(offsetof(MoveArgs, dst_line)));
        dec(lines_);
        jnz(line, T_NEAR);
        vzeroupper();
        ret();
        emit_orders();
        if (unit_ == 1) emit_masks();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    Xbyak::Address field(std::size_t offset) const { return qword[args_ + offset]; }

    void join(int done) {
        mov(place_, src_);
        for (int part = 0; part < 3; ++part) {
            if (part > 0) add(place_, row_);
            vmovups(triple(part), ptr[place_ + done]);
            put_in_order(part, part);
        }
        for (int v = 0; v < 3; ++v) {
            vmovaps(triple(3), triple(0));
            for (int part = 1; part < 3; ++part) choose(3, part, part, v);
            vmovups(ptr[dst_ + (3 * done + v * triple_bytes())], triple(3));
        }
    }

    void split(int done) {
        for (int v = 0; v < 3; ++v) {
            vmovups(triple(v), ptr[src_ + (3 * done + v * triple_bytes())]);
        }
        mov(place_, dst_);
        for (int part = 0; part < 3; ++part) {
            vmovaps(triple(3), triple(0));
            for (int v = 1; v < 3; ++v) choose(3, v, part, v);
            put_in_order(3, part);
            if (part > 0) add(place_, row_);
            vmovups(ptr[place_ + done], triple(3));
        }
    }

    // AVX2 permutes halves, and AVX-512 without VBMI bytes, in 128 bits alone.
    int triple_bytes() const {
        return unit_ == 1 || (!avx512() && unit_ == 2) ? kPartBytes : vector_bytes();
    }
    int triple_lanes() const { return triple_bytes() / unit_; }
    Xbyak::Xmm triple(int index) const {
        return triple_bytes() == kPartBytes ? Xbyak::Xmm(index) : vector(index);
    }
    static int order_of(int part) { return 4 + part; }
    static int mask_of(int part) { return 7 + part; }  // of bytes

    // Of `from`, the lanes in which vector `v` of the triples has such a part.
    void choose(int to, int from, int part, int v) {
        const int first = ((part - v * triple_lanes()) % 3 + 3) % 3;
        const Xbyak::Xmm a = triple(to), b = triple(from);
        const auto lanes = static_cast<std::uint8_t>(lanes_.at(static_cast<std::size_t>(first)));
        if (unit_ == 1) {
            vpblendvb(a, a, b, triple(mask_of(first)));
        } else if (!avx512()) {
            unit_ == 4 ? vpblendd(a, a, b, lanes) : vpblendw(a, a, b, lanes);
        } else if (unit_ == 4) {
            vmovdqa32(a | Xbyak::Opmask(first + 1), b);
        } else {
            vmovdqu16(a | Xbyak::Opmask(first + 1), b);
        }
    }

    void put_in_order(int index, int part) {
        const Xbyak::Xmm v = triple(index), order = triple(order_of(part));
        if (unit_ == 4) {
            avx512() ? vpermd(Xbyak::Zmm(index), Xbyak::Zmm(order.getIdx()), v)
                     : vpermd(Xbyak::Ymm(index), Xbyak::Ymm(order.getIdx()), v);
        } else if (avx512() && unit_ == 2) {
            vpermw(Xbyak::Zmm(index), Xbyak::Zmm(order.getIdx()), v);
        } else {
            vpshufb(v, v, order);
        }
    }

    // Lane `lane` of a part of a vector is number (3 lane + part) modulo lanes of the triples.
    void emit_orders() {
        const int lanes = triple_lanes();
        for (int part = 0; part < 3; ++part) {
            L(orders_.at(static_cast<std::size_t>(part)));
            for (int to = 0; to < lanes; ++to) {
                int from = (3 * to + part) % lanes;
                for (int i = 0; joins_ && i < lanes; ++i) {
                    if ((3 * i + part) % lanes == to) from = i;
                }
                if (unit_ == 4) {
                    dd(static_cast<std::uint32_t>(from));
                } else if (unit_ == 1) {
                    db(from);
                } else if (avx512()) {
                    dw(static_cast<std::uint32_t>(from));
                } else {
                    dw(static_cast<std::uint32_t>(2 * from + ((2 * from + 1) << 8)));
                }
            }
        }
    }

    void emit_masks() {
        for (int part = 0; part < 3; ++part) {
            L(masks_.at(static_cast<std::size_t>(part)));
            for (int lane = 0; lane < triple_lanes(); ++lane) db(lane % 3 == part ? 0xff : 0);
        }
    }

    static constexpr int kPartBytes = 16;

    int unit_;
    bool joins_;
    std::array<std::uint32_t, 3> lanes_ = {};  // every third
    std::array<Xbyak::Label, 3> orders_;
    std::array<Xbyak::Label, 3> masks_;

    Reg args_ = rdi;
    Reg src_ = r8;
    Reg dst_ = r9;
    Reg row_ = rcx;  // the distance of rows
    Reg place_ = rdx;
    Reg count_ = rax;
    Reg line_src_ = r10;
    Reg line_dst_ = r11;
    Reg lines_ = rsi;
};

}  // namespace

std::vector<std::uint8_t> emit_triples(const MoveSpec& spec, Isa isa) {
    std::array<std::uint8_t, TripleEmitter::kMostCodeBytes> buffer;
    return TripleEmitter(spec, isa, buffer.data()).emit();
}

}  // namespace dlprim
