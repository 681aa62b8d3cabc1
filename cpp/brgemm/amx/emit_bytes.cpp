// Finished tiles of 8-bit products as bytes. The epilogue of the vectors' kernels takes longer than
// the products of a few hundred channels: it narrows every vector by itself, with bounds, and loads
// what belongs to a column again for every few rows. Here that is done once for a block, and up to
// four vectors of a row become 64 bytes together, of which the lower bound is taken at last:
// rounding and packing keep the order of numbers, and what no integer holds, NaN too, is lowest.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "brgemm/amx/tile_frame.h"
#include "brgemm/brgemm_emitter.h"

namespace dlprim {
namespace {

constexpr int kValues = 16;  // registers from 0 up
constexpr int kScales = 16;  // one per vector of a row
constexpr int kIntBiases = 20;
constexpr int kHighest = 24;
constexpr int kLowest = 25;     // as bytes
constexpr int kZeroPoint = 26;  // as 16 bits
constexpr int kOrder = 27;
constexpr int kResidualScale = 28;
constexpr int kResidual = 29;

Xbyak::Zmm zmm(int index) { return Xbyak::Zmm(index); }

// Packing leaves four bytes of each vector side by side.
std::array<std::uint8_t, 64> order_of_words() {
    std::array<std::uint8_t, 64> words = {};
    for (std::size_t i = 0; i < 16; ++i) {
        words[i * 4] = static_cast<std::uint8_t>(i % 4 * 4 + i / 4);
    }
    return words;
}

}  // namespace

bool BrgemmEmitter::packs_bytes() const {
    return spec_.epilogue.range && spec_.epilogue.activation == Activation::none &&
           spec_.beta == 0 && !spec_.zero_point_a && !spec_.zero_point_b;
}

void BrgemmEmitter::narrow_words(int to, int first, int second) {
    vpackssdw(zmm(to), zmm(first), zmm(second));
    vpaddsw(zmm(to), zmm(to), zmm(kZeroPoint));
}

void BrgemmEmitter::narrow_halves(int to, int first, int second) {
    const Xbyak::Zmm bytes = zmm(to), x = zmm(first), y = zmm(second);
    spec_.c_type == DType::u8 ? vpackuswb(bytes, x, y) : vpacksswb(bytes, x, y);
}

void BrgemmEmitter::load_ends() {
    const Epilogue& epilogue = spec_.epilogue;
    const auto load_each = [&](std::size_t columns, int to) {
        point_at_columns(columns);
        for (int v = 0; v < tile_.vectors; ++v) {
            load(to + v, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        }
    };
    if (epilogue.scale == Scale::column) load_each(offsetof(BrgemmArgs, scale), kScales);
    if (epilogue.scale == Scale::tensor) {
        mov(scratch_, arg(offsetof(BrgemmArgs, scale)));
        broadcast(kScales, scratch_ + displacement(0));
    }
    if (epilogue.int_bias) load_each(offsetof(BrgemmArgs, int_bias), kIntBiases);
    broadcast(kHighest, args_ + offsetof(BrgemmArgs, highest));
    vpbroadcastw(zmm(kZeroPoint), word[args_ + offsetof(BrgemmArgs, zero_point_c)]);
    broadcast(kLowest, args_ + offsetof(BrgemmArgs, lowest));
    vcvtps2dq(zmm(kLowest), zmm(kLowest));
    narrow_words(kLowest, kLowest, kLowest);
    narrow_halves(kLowest, kLowest, kLowest);
    vmovdqu64(zmm(kOrder), ptr[rip + lines_[order_of_words()]]);
    if (epilogue.residual_scale) {
        broadcast(kResidualScale, args_ + offsetof(BrgemmArgs, residual_scale));
    }
    const int bytes = bytes_of_row();
    if (bytes % 16 != 0 || bytes == 48) {
        mov(scratch_, (std::uint64_t{1} << bytes) - 1);
        kmovq(row_bytes_, scratch_);
    }
    if (epilogue.bias) {
        point_at_columns(offsetof(BrgemmArgs, bias));
        mov(a_next_, scratch_);
    }
    if (epilogue.residual) {
        point_at_residual();
        mov(b_next_, scratch_);
    }
}

int BrgemmEmitter::bytes_of_row() const {
    return (tile_.vectors - 1) * 16 + (masked_ ? tail_lanes() : 16);
}

void BrgemmEmitter::finish_vector(int row, int v, int index) {
    const Epilogue& epilogue = spec_.epilogue;
    const Xbyak::Zmm x = zmm(index);
    const auto sums = ptr[a_ + (row * tile_.vectors + v) * kTileRowBytes];
    if (epilogue.int_bias) {
        vpaddd(x, zmm(kIntBiases + v), sums);
        vcvtdq2ps(x, x);
    } else {
        vcvtdq2ps(x, sums);
    }
    if (epilogue.scale != Scale::none) {
        vmulps(x, x, zmm(kScales + (epilogue.scale == Scale::column ? v : 0)));
    }
    if (epilogue.bias) {
        const auto bias = ptr[a_next_ + v * vector_bytes()];
        is_tail(v) ? vaddps(x | tail_mask() | T_z, x, bias) : vaddps(x, x, bias);
    }
    if (epilogue.inner) {
        vmaxps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_lowest)]);
        vminps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_highest)]);
        round_to_even(index);
        vmulps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_scale)]);
        vaddps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_shift)]);
    }
    if (epilogue.residual) {
        load_elements(kResidual, element_at(b_next_, row, v), spec_.c_type, is_tail(v));
        if (epilogue.residual_scale) multiply_floats(kResidual, kResidualScale);
        add_floats(index, kResidual);
    }
    vminps(x, zmm(kHighest), x);  // NaN as the second one stays
    vcvtps2dq(x, x);
}

// What is in up to four registers from `first` on, in order.
void BrgemmEmitter::pack_vectors(int first, int count) {
    const auto at = [&](int i) { return first + std::min(i, count - 1); };
    narrow_words(first, first, at(1));
    if (count > 2) narrow_words(first + 2, first + 2, at(3));
    narrow_halves(first, first, at(2));
    const Xbyak::Zmm x = zmm(first);
    spec_.c_type == DType::u8 ? vpmaxub(x, x, zmm(kLowest)) : vpmaxsb(x, x, zmm(kLowest));
    vpermd(x, zmm(kOrder), x);
}

void BrgemmEmitter::store_row_of_bytes(int row) {
    const int first = row * tile_.vectors;
    pack_vectors(first, tile_.vectors);
    const auto to = ptr[c_at(row, 0)];
    switch (bytes_of_row()) {
        case 64: return vmovdqu64(to, zmm(first));
        case 32: return vmovdqu(to, Xbyak::Ymm(first));
        case 16: return vmovdqu(to, Xbyak::Xmm(first));
        default: return vmovdqu8(to | row_bytes_, zmm(first));
    }
}

void BrgemmEmitter::finish_rows_of_bytes(int rows) {
    for (int row = 0; row < rows; ++row) {
        for (int v = 0; v < tile_.vectors; ++v) finish_vector(row, v, row * tile_.vectors + v);
    }
    int row = 0;
    for (; bytes_of_row() == 32 && row + 1 < rows; row += 2) {
        const int first = row * tile_.vectors;
        pack_vectors(first, 4);
        vmovdqu(ptr[c_at(row, 0)], Xbyak::Ymm(first));
        vextracti64x4(ptr[c_at(row + 1, 0)], zmm(first), 1);
    }
    for (; row < rows; ++row) store_row_of_bytes(row);
}

// A tile's rows are finished before the next tiles are stored, so that the core has vectors to work
// on while these wait for their products.
void BrgemmEmitter::finish_bytes() {
    load_ends();
    const int at_once = kValues / tile_.vectors;
    const int row_bytes = tile_.vectors * kTileRowBytes;
    for (int r = 0; r < tiles_map_.row_tiles; ++r) {
        const int rows = tile_rows(tile_, r).count;
        mov(scratch_, row_bytes);
        for (int s = 0; s < tile_.vectors; ++s) {
            tilestored(ptr[rsp + scratch_ + (kSums + s * kTileRowBytes)],
                       Xbyak::Tmm(tiles_map_.c(r, s)));
        }
        lea(a_, on_stack(kSums));
        for (int row = 0; row < rows; row += at_once) {
            const int these = std::min(at_once, rows - row);
            finish_rows_of_bytes(these);
            add(a_, these * row_bytes);
            add(c_, immediate(these * c_row_));
            if (spec_.epilogue.residual) add(b_next_, immediate(these * c_row_));
        }
    }
    sub(c_, immediate(tile_.rows * c_row_));
}

}  // namespace dlprim
