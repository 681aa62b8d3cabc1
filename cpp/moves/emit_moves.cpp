#include "moves/emit_moves.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "jit/element_assembler.h"

namespace dlprim {
namespace {

// Where a column is after a square was transposed: its bits reversed.
std::size_t position_of(int column, int columns) {
    std::size_t position = 0;
    for (int bit = 1; bit < columns; bit *= 2) position = position * 2 + ((column & bit) != 0);
    return position;
}

// Rows are loaded into registers in pieces of lanes, where two or four rows share a register if
// there are too few of these. Units are interleaved within lanes, which makes a square of every
// lane, and lanes are exchanged, so that a register becomes a part of a column.
class MoveEmitter : ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = std::size_t{256} << 10;

    MoveEmitter(const MoveSpec& spec, Isa isa, void* buffer)
        : ElementAssembler(isa, buffer, kMostCodeBytes),
          spec_(spec),
          dst_bytes_(static_cast<int>(spec.dst_bytes)),
          src_scale_(static_cast<int>(spec.scale())),
          pairs_(spec.unit == 1 && !avx512()),
          unit_(pairs_ ? 2 : spec.unit),
          units_(kLaneBytes / unit_),
          width_(std::clamp(kMostRegisters / (avx512() ? 1 : 2) / units_, 1,
                            vector_bytes() / kLaneBytes)),
          sharing_(vector_bytes() / kLaneBytes / width_),
          rows_(avx512() ? kMostRegisters : 0),
          scratch_(avx512() ? 0 : kMostRegisters / 2) {}

    std::vector<std::uint8_t> emit() {
        push(column_);
        mov(dst_, field(offsetof(MoveArgs, dst)));
        spec_.way == MoveSpec::Way::transpose ? tiles() : groups();
        pop(column_);
        vzeroupper();
        ret();
        emit_constants();
        if (spec_.unit == 8) {
            L(order_);
            for (const int from : {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}) db(from);
        }
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    static constexpr int kLaneBytes = 16;  // within which vectors interleave
    static constexpr int kWordBytes = 4;
    static constexpr int kBytesAhead = 512;
    static constexpr int kMostRegisters = 16;     // of rows
    static constexpr int kMostVectorsInLine = 8;  // of a row of words; more are a loop
    static constexpr int kVectorsOfLoop = 4;

    // What scratch is for; units of eight bytes, whose bytes have an order, are never rounded.
    int spare() const { return scratch_; }
    int part() const { return scratch_ + 1; }
    int second() const { return scratch_ + 2; }
    int order() const { return scratch_ + 2; }
    int rounding() const { return scratch_ + 3; }

    Xbyak::Address field(std::size_t offset) const { return qword[args_ + offset]; }
    int piece_bytes() const { return width_ * kLaneBytes / (pairs_ ? 2 : 1); }

    // ---------------------------------------------------------------- tiles

    void tiles() {
        mov(src_, field(offsetof(MoveArgs, src)));
        mov(src_rows_,
            field(spec_.lists_src ? offsetof(MoveArgs, src_rows) : offsetof(MoveArgs, src_row)));
        mov(dst_rows_,
            field(spec_.lists_dst ? offsetof(MoveArgs, dst_rows) : offsetof(MoveArgs, dst_row)));
        if (!spec_.lists_src) imul(next_square_, src_rows_, units_ * (pairs_ ? 2 : 1));
        mov(count_, field(offsetof(MoveArgs, count)));
        if (spec_.unit == 8) broadcast_order();
        if (avx512()) {
            set_bytes(tail_mask(), dst_bytes_ % vector_bytes());
            set_bytes(part_mask_, spec_.src_bytes * src_scale_ % piece_bytes());
        }
        Xbyak::Label next;
        L(next);
        for (int down = 0; down < dst_bytes_; down += vector_bytes()) {
            mov(column_, dst_);
            for (int across = 0; across < spec_.src_bytes; across += piece_bytes()) {
                load_tile(down, across);
                store_tile(down, across);
            }
        }
        add(src_, field(offsetof(MoveArgs, src_step)));
        add(dst_, field(offsetof(MoveArgs, dst_step)));
        if (spec_.lists_src) add(src_rows_, field(offsetof(MoveArgs, src_rows_step)));
        if (spec_.lists_dst) add(dst_rows_, field(offsetof(MoveArgs, dst_rows_step)));
        dec(count_);
        jnz(next, T_NEAR);
    }

    void set_bytes(const Xbyak::Opmask& mask, int bytes) {
        mov(row_, (std::uint64_t{1} << bytes) - 1);
        kmovq(mask, row_);
    }

    void broadcast_order() {
        if (avx512()) {
            vbroadcasti32x4(Xbyak::Zmm(order()), ptr[rip + order_]);
        } else {
            vbroadcasti128(Xbyak::Ymm(order()), ptr[rip + order_]);
        }
    }

    int row_register(int square, int i) const { return rows_ + square * units_ + i; }

    void load_tile(int down, int across) {
        if (!spec_.lists_src) {
            mov(first_row_, src_);
            if (down > 0) {
                imul(row_, src_rows_, down / spec_.unit);
                add(first_row_, row_);
            }
        }
        for (int square = 0; square < width_; ++square) {
            for (int i = 0; i < units_; ++i) {
                pairs_ ? load_pairs(i, down, across) : load_rows(square, i, down, across);
            }
            for (int other = 1; !spec_.lists_src && other < sharing_; ++other) {
                add(first_row_, next_square_);
            }
        }
    }

    // The rows that share a register.
    void load_rows(int square, int i, int down, int across) {
        const int rows = (dst_bytes_ + spec_.unit - 1) / spec_.unit;
        const int first = down / spec_.unit + square * sharing_ * units_ + i;
        const int index = row_register(square, i);
        if (first >= rows || (spec_.second_is_zero && i % 2 == 1)) return zero(index);
        const int bytes = std::min(spec_.src_bytes - across, piece_bytes()) * src_scale_;
        const int from = across * src_scale_;
        for (int share = 0; share < sharing_; ++share) {
            const int row = first + share * units_;
            if (row >= rows) break;
            find_row(share == 0, row);
            for (int line = 0; spec_.reads_ahead && across == 0 && line < kTileSide * src_scale_;
                 line += kTileSide) {
                prefetcht0(ptr[row_ + (line + kBytesAhead)]);
            }
            load_piece(index, share, row_ + from, std::min(bytes, piece_bytes()));
            if (spec_.rounds) {
                load_piece(second(), share, row_ + (from + piece_bytes()), bytes - piece_bytes());
            }
        }
        if (!spec_.lists_src) add(first_row_, src_rows_);
        const Vector v = vector(index);
        if (spec_.unit == 8) vpshufb(v, v, vector(order()));
        if (!spec_.rounds) return;
        round_to_bf16(index, rounding());
        round_to_bf16(second(), rounding());
        vpackusdw(v, v, vector(second()));
    }

    // Of rows of bytes, which are words of two rows then. A lane has those below the one before.
    void load_pairs(int i, int down, int across) {
        const int first = down + 2 * i, index = row_register(0, i);
        const int bytes = std::min(spec_.src_bytes - across, piece_bytes());
        if (first >= dst_bytes_) return zero(index);
        for (int share = 0; share < sharing_; ++share) {
            const int row = first + share * kLaneBytes, to = share == 0 ? index : part();
            if (row >= dst_bytes_) break;
            find_row(share == 0, row);
            if (spec_.reads_ahead && across == 0) prefetcht0(ptr[row_ + kBytesAhead]);
            load_low(to, row_ + across, 1, bytes);
            if (row + 1 < dst_bytes_) {
                spec_.lists_src ? find_row(true, row + 1) : add(row_, src_rows_);
                if (spec_.reads_ahead && across == 0) prefetcht0(ptr[row_ + kBytesAhead]);
                load_low(second(), row_ + across, 1, bytes);
                if (!spec_.lists_src) sub(row_, src_rows_);
            } else {
                zero(second());
            }
            vpunpcklbw(Xbyak::Xmm(to), Xbyak::Xmm(to), Xbyak::Xmm(second()));
            if (share > 0) insert(index, share, Xbyak::Xmm(to));
        }
        for (int row = 0; row < 2 && !spec_.lists_src; ++row) add(first_row_, src_rows_);
    }

    // Loads of addresses would wait for stores before them that are a multiple of 4096 bytes apart,
    // as some always is: lists are for rows that are not at one distance.
    void find_row(bool is_first, int row) {
        if (spec_.lists_src) {
            mov(row_, src_);
            add(row_, ptr[src_rows_ + row * 8]);
        } else if (is_first) {
            mov(row_, first_row_);
        } else {
            add(row_, next_square_);
        }
    }

    Xbyak::Xmm piece(int index) const {
        if (width_ == 4) return Xbyak::Zmm(index);
        return width_ == 2 ? Xbyak::Xmm(Xbyak::Operand::YMM, index) : Xbyak::Xmm(index);
    }

    // The first one clears the others.
    void load_piece(int index, int share, const Xbyak::RegExp& from, int bytes) {
        if (bytes <= 0) {
            if (share == 0) zero(index);
            return;
        }
        const bool is_whole = bytes == piece_bytes();
        const int to = share == 0 ? index : part();
        if (share > 0 && is_whole) return insert(index, share, ptr[from]);
        if (is_whole) {
            vmovups(piece(to), ptr[from]);
        } else if (avx512()) {
            vmovdqu8(piece(to) | part_mask_ | T_z, ptr[from]);
        } else {
            load_part(to, from, bytes);
        }
        if (share > 0) insert(index, share, piece(part()));
    }

    void insert(int index, int share, const Xbyak::Operand& from) {
        const auto at = static_cast<std::uint8_t>(share);
        if (!avx512()) {
            vinserti128(Xbyak::Ymm(index), Xbyak::Ymm(index), from, at);
        } else if (width_ == 2) {
            vinserti64x4(Xbyak::Zmm(index), Xbyak::Zmm(index), from, at);
        } else {
            vinserti32x4(Xbyak::Zmm(index), Xbyak::Zmm(index), from, at);
        }
    }

    // AVX2.
    void load_part(int index, const Xbyak::RegExp& from, int bytes) {
        load_low(index, from, 1, std::min(bytes, kLaneBytes));
        if (bytes <= kLaneBytes) return;
        load_low(spare(), from + kLaneBytes, 1, bytes - kLaneBytes);
        vinserti128(Xbyak::Ymm(index), Xbyak::Ymm(index), Xbyak::Xmm(spare()), 1);
    }

    void store_tile(int down, int across) {
        const std::array<int, kMostRegisters> at = transposed();
        // Rounding packs the halves of a row, lane by lane.
        const int together = spec_.rounds ? units_ / 2 : units_;
        for (int column = 0; column < width_ * units_; ++column) {
            const int index = across / spec_.unit + column;
            if (index * spec_.unit >= spec_.src_bytes) return;
            const int half = column / (width_ * together), place = column % (width_ * together);
            const int in_lane = half * together + place % together;
            if (spec_.lists_dst) {
                mov(column_, dst_);
                add(column_, ptr[dst_rows_ + index * 8]);
            } else if (index > 0) {
                add(column_, dst_rows_);
            }
            const std::size_t position = position_of(in_lane, units_);
            store_bytes(column_ + down,
                        at[static_cast<std::size_t>(place / together * units_) + position],
                        dst_bytes_ - down);
        }
    }

    // Which registers are columns then: of every lane, in the order of position_of().
    std::array<int, kMostRegisters> transposed() {
        std::array<int, kMostRegisters> at = {};
        const int all = width_ * units_;
        for (int i = 0; i < all; ++i) at[static_cast<std::size_t>(i)] = rows_ + i;
        int free = spare();
        for (int apart = 1; apart < all; apart *= 2) {
            for (int i = 0; i < all; ++i) {
                if ((i & apart) != 0) continue;
                int& low = at[static_cast<std::size_t>(i)];
                const int high = at[static_cast<std::size_t>(i + apart)];
                apart < units_ ? interleave(free, low, high, unit_ * apart)
                               : exchange(free, low, high);
                std::swap(free, low);
            }
        }
        return at;
    }

    // Lower halves of lanes to `lower`, the upper ones to `high`.
    void interleave(int lower, int low, int high, int width) {
        const Vector to = vector(lower), a = vector(low), b = vector(high);
        if (width == 1) {
            vpunpcklbw(to, a, b);
            vpunpckhbw(b, a, b);
        } else if (width == 2) {
            vpunpcklwd(to, a, b);
            vpunpckhwd(b, a, b);
        } else if (width == 4) {
            vpunpckldq(to, a, b);
            vpunpckhdq(b, a, b);
        } else {
            vpunpcklqdq(to, a, b);
            vpunpckhqdq(b, a, b);
        }
    }

    // Even lanes to `even`, odd ones to `high`.
    void exchange(int even, int low, int high) {
        if (avx512()) {
            const Xbyak::Zmm to(even), a(low), b(high);
            vshuff32x4(to, a, b, 0x88);
            vshuff32x4(b, a, b, 0xdd);
        } else {
            const Xbyak::Ymm to(even), a(low), b(high);
            vperm2i128(to, a, b, 0x20);
            vperm2i128(b, a, b, 0x31);
        }
    }

    // AVX2 overwrites the register.
    void store_bytes(const Xbyak::RegExp& to, int index, int bytes) {
        if (bytes >= vector_bytes()) return vmovups(ptr[to], vector(index));
        if (avx512() && bytes != 8 && bytes != 4 && bytes != 2) {
            return vmovdqu8(ptr[to] | tail_mask(), vector(index));
        }
        if (bytes < kLaneBytes) return store_low(to, index, 1, bytes);
        vmovups(ptr[to], Xbyak::Xmm(index));
        if (bytes == kLaneBytes) return;
        vextracti128(Xbyak::Xmm(index), Xbyak::Ymm(index), 1);
        store_low(to + kLaneBytes, index, 1, bytes - kLaneBytes);
    }

    // ---------------------------------------------------------------- groups

    void groups() {
        const int lanes = vector_bytes() / kWordBytes;
        const int columns = dst_bytes_ / kWordBytes;
        if (columns % lanes > 0) set_tail(columns % lanes);
        const int sources = spec_.src_bytes / spec_.unit;
        mov(src_, field(offsetof(MoveArgs, src)));
        for (int s = 1; s < sources; ++s) {
            mov(source(s), source(s - 1));
            add(source(s), field(offsetof(MoveArgs, src_row)));
        }
        mov(count_, field(offsetof(MoveArgs, count)));
        Xbyak::Label next;
        L(next);
        words(columns / lanes, columns % lanes > 0);
        for (int s = 0; s < sources; ++s) add(source(s), field(offsetof(MoveArgs, src_step)));
        add(dst_, field(offsetof(MoveArgs, dst_step)));
        dec(count_);
        jnz(next, T_NEAR);
    }

    const Reg& source(int index) const {
        static constexpr std::array kSources = {&MoveEmitter::src_, &MoveEmitter::row_,
                                                &MoveEmitter::third_, &MoveEmitter::fourth_};
        return this->*kSources.at(static_cast<std::size_t>(index));
    }

    // A row of dst, and a partial vector behind the others.
    void words(int vectors, bool has_tail) {
        const int lanes = vector_bytes() / kWordBytes;
        int done = 0;
        xor_(column_.cvt32(), column_.cvt32());
        if (vectors > kMostVectorsInLine) {
            done = vectors / kVectorsOfLoop * kVectorsOfLoop;
            Xbyak::Label again;
            L(again);
            for (int v = 0; v < kVectorsOfLoop; ++v) vector_of_words(v * lanes, false);
            add(column_, kVectorsOfLoop * lanes);
            cmp(column_, done * lanes);
            jb(again, T_NEAR);
        }
        for (int v = done; v < vectors; ++v) vector_of_words((v - done) * lanes, false);
        if (has_tail) vector_of_words((vectors - done) * lanes, true);
    }

    void vector_of_words(int first, bool masked) {
        const int bytes = spec_.unit * src_scale_;
        const int joined = scratch_, next = scratch_ + 1;
        for (int s = 0; s * spec_.unit < spec_.src_bytes; ++s) {
            const int to = s == 0 ? joined : next;
            load_widened(to, source(s) + column_ * bytes + first * bytes, masked);
            if (s == 0) continue;
            shift_words_left(to, s * spec_.unit * 8);
            vorps(vector(joined), vector(joined), vector(next));
        }
        store(dst_ + column_ * kWordBytes + first * kWordBytes, joined, masked, next);
    }

    // An element in the low part of each word, zeros above it.
    void load_widened(int index, const Xbyak::RegExp& from, bool masked) {
        if (spec_.rounds) {
            load(index, from, masked);
            return round_to_bf16(index, rounding());
        }
        const Xbyak::Xmm low(index);
        if (!avx512()) load_low(index, from, spec_.unit, masked ? tail_lanes() : 8);
        const Vector v = masked && avx512() ? vector(index) | tail_mask() | T_z : vector(index);
        const Xbyak::Address memory = ptr[from];
        const Xbyak::Operand& elements =
            avx512() ? static_cast<const Xbyak::Operand&>(memory) : low;
        spec_.unit == 1 ? vpmovzxbd(v, elements) : vpmovzxwd(v, elements);
    }

    MoveSpec spec_;
    int dst_bytes_;
    int src_scale_;  // bytes of src for one of a result
    bool pairs_;     // bytes of two rows become words: AVX2 has no registers for squares of bytes
    int unit_;       // bytes that stay together in registers
    int units_;      // of a lane
    int width_;      // lanes of a piece
    int sharing_;    // pieces of a register
    int rows_;       // the first register of rows
    int scratch_;

    Reg args_ = rdi;
    Reg src_ = r8;
    Reg dst_ = r9;
    Reg src_rows_ = r10;  // a list, or the distance of rows
    Reg dst_rows_ = r11;
    Reg count_ = rax;
    Reg row_ = rcx;
    // Of tiles, and of groups.
    Reg first_row_ = rdx, third_ = rdx;     // of those that share a register
    Reg next_square_ = rsi, fourth_ = rsi;  // the distance of squares
    Reg column_ = rbx;
    Xbyak::Opmask part_mask_ = k3;  // of a piece
    Xbyak::Label order_;
};

}  // namespace

std::vector<std::uint8_t> emit_move(const MoveSpec& spec, Isa isa) {
    if (spec.way == MoveSpec::Way::join_three || spec.way == MoveSpec::Way::split_three) {
        return emit_triples(spec, isa);
    }
    if (spec.way == MoveSpec::Way::join_two || spec.way == MoveSpec::Way::split_two) {
        return emit_pairs(spec, isa);
    }
    const auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(MoveEmitter::kMostCodeBytes);
    return MoveEmitter(spec, isa, buffer.get()).emit();
}

}  // namespace dlprim
