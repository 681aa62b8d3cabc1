// Finished tiles of 8-bit products as bytes. The epilogue of the vectors' kernels takes longer than
// the products of a few hundred channels: it narrows every vector by itself, with bounds, and loads
// what belongs to a column again for every few rows. Here that is done once for a block, and up to
// four vectors of a row become 64 bytes together, of which the lower bound is taken at last:
// rounding and packing keep the order of numbers, and what no integer holds, NaN too, is lowest.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "brgemm/amx/tile_frame.h"
#include "brgemm/brgemm_emitter.h"

namespace dlprim {
namespace {

constexpr int kValues = 16;  // registers from 0 up
constexpr int kIntBiases = 20;

Xbyak::Zmm zmm(int index) { return Xbyak::Zmm(index); }

std::vector<int> registers_from(int first, int count) {
    std::vector<int> registers(static_cast<std::size_t>(count));
    std::iota(registers.begin(), registers.end(), first);
    return registers;
}

}  // namespace

void BrgemmEmitter::load_ends() {
    const Epilogue& epilogue = spec_.epilogue;
    const auto load_each = [&](std::size_t columns, int to) {
        point_at_columns(columns, scratch_);
        for (int v = 0; v < tile_.vectors; ++v) {
            load(to + v, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        }
    };
    if (epilogue.scale == Scale::column) load_each(offsetof(BrgemmArgs, scale), kTileEnds.scales);
    if (epilogue.scale == Scale::tensor) {
        mov(scratch_, arg(offsetof(BrgemmArgs, scale)));
        broadcast(kTileEnds.scales, scratch_ + displacement(0));
    }
    if (epilogue.int_bias) load_each(offsetof(BrgemmArgs, int_bias), kIntBiases);
    broadcast(kTileEnds.highest, args_ + offsetof(BrgemmArgs, highest));
    load_packing(kTileEnds.packing);
    if (epilogue.residual_scale) {
        broadcast(kTileEnds.residual_scale, args_ + offsetof(BrgemmArgs, residual_scale));
    }
    const int bytes = bytes_of_row();
    if (bytes % 16 != 0 || bytes == 48) {
        mov(scratch_, (std::uint64_t{1} << bytes) - 1);
        kmovq(row_bytes_, scratch_);
    }
    if (epilogue.bias) {
        point_at_columns(offsetof(BrgemmArgs, bias), a_next_);
    }
    if (epilogue.residual) {
        point_at_residual(b_next_);
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
    end_sum(row, v, index, kTileEnds);
}

void BrgemmEmitter::store_row_of_bytes(int row) {
    const int first = row * tile_.vectors;
    pack_bytes(registers_from(first, tile_.vectors), spec_.c_type, kTileEnds.packing);
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
        pack_bytes(registers_from(first, 4), spec_.c_type, kTileEnds.packing);
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
