#include "primitives/mapping/product_walk.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "jit/isa.h"
#include "primitives/mapping/copied_operand.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Rows up to which B is read in place at full speed, and of a B that comes from memory then: rows
// and columns of a call, and the order, in which as many rows of B stream side by side as the
// hardware follows (Machine::rows_side_by_side).
constexpr std::int64_t kFewRows = 192;
constexpr std::int64_t kStreamedRows = 16;
constexpr std::int64_t kWideColumns = 256;
// Up to so many rows of A fewer rows of B stream side by side, each as far as that part of L1 holds
// rows of C, and no farther than as many cores, up to so many, share it evenly.
constexpr std::int64_t kVectorsRows = 2;
constexpr double kVectorsPartOfL1 = 0.5;
constexpr std::int64_t kVectorsCores = 8;
constexpr double kStreamedPartOfL2 = 0.5;
// Of a sum, that one call goes through at most.
constexpr std::int64_t kShortSum = 32;
constexpr std::int64_t kLongestDepth = 256;
constexpr std::int64_t kLongestTransposedDepth = 128;
// Loops of one product, of which the cost model tries every order, and parts of a sum that one call
// gathers. Packed operands merge what exceeds them.
constexpr int kMostLoopsOfOne = 5;
constexpr std::int64_t kMostEntries = 1 << 16;

// Cycles of a call, of a step of one at least, and of each row of C that ends within a vector, as
// AVX2 masks it.
constexpr double kProductCall = 100;
constexpr double kLeastStep = 3;
constexpr double kMaskedRow = 12;
// Cycles of a part of a sum in each tile of registers, as it begins, and of each line of an A in
// place of which a part that is shorter reads little (224 channels, each a part of 2 taps, of
// 12,288 pixels: 9 ms expected without, 23 measured). Tiles are of so many rows, where registers
// are few or many, and of so many vectors.
constexpr double kPart = 6;
constexpr double kShortLine = 3;
constexpr std::int64_t kTileRowsOfFew = 6;
constexpr std::int64_t kTileRows = 14;
constexpr double kTileVectors = 2;

// How much longer arithmetic takes on a B whose rows are far apart, where it is used again and
// again, in the near caches and where it comes from farther, each row from a page of its own (256 x
// 4096 by 4096 x 4096 on an Emerald Rapids: 128 ms in place, 66 packed), and on a transposed A that
// comes from memory (2560 x 2560 x 128: 51 ms in place, 14 ms as the transposed product).
constexpr double kFarRows = 1.15;
constexpr double kFarPages = 1.6;
constexpr double kFarColumns = 2.5;
constexpr double kFarColumnsOnce = 1.3;  // by one block of columns alone
// On a transposed A whose rows are farther apart than hardware looks ahead, in bytes (768 x 1024 by
// 1024 x 3072: 39 ms in place at best, 37 packed), and on one that no near cache holds (1024 x 512
// by 512 x 1024 on an Emerald Rapids: 11.4 ms in place, 8.7 packed).
constexpr double kFarTransposed = 1.04;
constexpr double kFarTransposedOfMany = 1.12;
constexpr std::int64_t kFarTransposedRow = 2048;
// For every doubling of the rows of a call beyond those whose lines the L1 cache keeps, of an
// operand that the L2 cache holds and of one that comes from farther away (Zen 4 at AVX2).
constexpr double kLostNear = 0.1;
constexpr double kLostFar = 0.6;
// By the rows of a transposed A that lie on more pages than the first TLB keeps beside those of B
// and of C (64 x 512 by 64 x 1000: 660 us in place, 607 packed).
constexpr double kLostPages = 1.1;
constexpr std::int64_t kPagesNear = 40;
// On a B that streams by, and where each of its rows begins on a page of its own, so that hardware
// looks ahead within short pieces (32 x 1024 by 1024 x 4096: 3.3 ms, as the transposed product 2.4;
// 16 x 1024 by 1024 x 1024: 341 us and 302).
constexpr double kStreamed = 1.15;
constexpr double kStreamedFar = 1.6;
constexpr std::int64_t kFarApart = 4096;  // bytes: every row on a page of its own
constexpr std::int64_t kFarthestRows = std::int64_t{1} << 24;  // elements; the kernel's bound

using Loops = std::vector<ProductIndex>;
using Stride = std::int64_t ProductIndex::*;

// As many as are worth a call of few products, about the same in all.
std::int64_t wide_columns(std::int64_t columns) {
    return equal_step(columns, kWideColumns, kBlockLanes);
}

double ceil_div(std::int64_t value, std::int64_t divisor) {
    return static_cast<double>((value + divisor - 1) / divisor);
}

// The index that a letter is in.
const ProductIndex* holder_of(char letter, const Loops& indices) {
    if (letter == 0) return nullptr;
    const auto found = std::find_if(indices.begin(), indices.end(), [&](const ProductIndex& it) {
        return (it.members >> (letter - 'a') & 1U) != 0;
    });
    return found == indices.end() ? nullptr : &*found;
}

void put_last_of(char letter, Loops& indices) {
    const auto found = std::find_if(indices.begin(), indices.end(),
                                    [&](const ProductIndex& it) { return it.letter == letter; });
    if (found != indices.end()) std::rotate(found, found + 1, indices.end());
}

// Densely, the last index of the last class innermost.
void pack(Stride stride, std::initializer_list<Loops*> classes) {
    std::int64_t next = 1;
    for (const auto* among = classes.end(); among-- != classes.begin();) {
        for (auto index = (*among)->rbegin(); index != (*among)->rend(); ++index) {
            (*index).*stride = next;
            next *= index->extent;
        }
    }
}

// Keeps what memory the vectors have.
void copy_loops(const StridedProduct& from, StridedProduct& to) {
    to.outer = from.outer;
    to.rows = from.rows;
    to.columns = from.columns;
    to.sums = from.sums;
}

}  // namespace

std::string names_of(std::uint32_t members, const StridedProduct& product) {
    std::string names;
    for (std::size_t i = 0; i < product.names.size(); ++i) {
        if ((members >> i & 1U) != 0) names += (names.empty() ? "" : " ") + product.names[i];
    }
    return names;
}

std::string said_of_packing(bool a, bool b, bool c) {
    const auto how = [](bool packs) { return packs ? "packed" : "in place"; };
    return std::string("A ") + how(a) + ", B " + how(b) + ", C " + how(c);
}

std::string to_string(const ProductWay& way, const StridedProduct& product) {
    std::string text = (way.exchanges ? "transposed product, " : "") +
                       said_of_packing(way.packs_a, way.packs_b, way.packs_c);
    std::uint32_t batch = 0;
    for (const ProductIndex& sum : product.sums) batch |= sum.members & ~way.k.members;
    const char* separator = "; ";
    for (const auto& [name, members] : {std::pair{"m: ", way.m.members},
                                        {"n: ", way.n.members},
                                        {"k: ", way.k.members},
                                        {"batch: ", batch}}) {
        if (members == 0) continue;
        text += separator + (name + names_of(members, product));
        separator = ", ";
    }
    return text;
}

ProductWalk::ProductWalk(const StridedProduct& product, bool exchanges, const Machine& machine)
    : machine_(machine),
      instruction_(instruction_for(product.dtype, product.b_type, usable_isa())),
      base_(exchanges ? exchanged(product) : product),
      word_(instruction_.word()) {
    for (Loops* indices : {&base_.outer, &base_.rows, &base_.columns, &base_.sums}) {
        merge(*indices);
    }
    plain_ = packed_ = it_ = base_;
}

bool ProductWalk::follow(const ProductWay& way) {
    way_ = way;
    block_ = block_stride_ = 0;
    transposes_ = streams_ = false;
    copy_loops(base_, plain_);
    put_last_of(way.n.letter, plain_.columns);
    put_last_of(way.k.letter, plain_.sums);
    copy_loops(plain_, packed_);
    StridedProduct& it = packed_;
    if (way.packs_a) pack(&ProductIndex::a, {&it.outer, &it.rows, &it.sums});
    if (way.packs_c) pack(&ProductIndex::c, {&it.outer, &it.rows, &it.columns});
    if (way.packs_b) pack_b();
    copy_loops(packed_, it_);
    for (Loops* indices : {&it_.outer, &it_.rows, &it_.columns, &it_.sums}) merge(*indices);
    return choose(way);
}

// [outer][blocks of columns][sums / word][columns of the block][word], or all columns in one block
// where they are several indices.
void ProductWalk::pack_b() {
    StridedProduct& it = packed_;
    std::int64_t stride = word_;
    const bool blocks = it.columns.size() == 1;
    block_ = blocks ? packed_block(it.columns.front().extent) : 0;
    for (auto index = it.columns.rbegin(); index != it.columns.rend(); ++index) {
        index->b = stride;
        stride *= blocks ? block_ : index->extent;
    }
    const std::int64_t row = stride;
    for (auto index = it.sums.rbegin(); index != it.sums.rend(); ++index) {
        const bool is_depth = index == it.sums.rbegin();
        index->b = is_depth ? row / word_ : stride;
        stride *= is_depth ? (index->extent + word_ - 1) / word_ : index->extent;
    }
    if (blocks) {
        block_stride_ = stride;
        stride *= Blocks{it.columns.front().extent, block_}.count();
    }
    for (auto index = it.outer.rbegin(); index != it.outer.rend(); ++index) {
        index->b = stride;
        stride *= index->extent;
    }
}

// Columns of words whose sums are short are as many as are worth a call (gradients of 1024 x 1024
// bfloat16 weights by two samples: 166 us in blocks of 64, 75 us).
std::int64_t ProductWalk::packed_block(std::int64_t columns) const {
    const std::int64_t block = linear_blocks(columns).block;
    const bool is_short = word_ > 1 && extent_of(base_.sums) <= kShortSum;
    return is_short ? std::max(block, wide_columns(columns)) : block;
}

// m, n and k. False where the kernel cannot go along them.
bool ProductWalk::choose(const ProductWay& way) {
    if (it_.sums.empty() || (word_ > 1 && !way.packs_b)) return false;
    const ProductIndex* const m = holder_of(way.m.letter, it_.rows);
    const ProductIndex* const n = holder_of(way.n.letter, it_.columns);
    const ProductIndex* const k = holder_of(way.k.letter, it_.sums);
    m_ = m == nullptr ? ProductIndex{.letter = 'y'} : *m;
    n_ = n == nullptr ? ProductIndex{.letter = 'z', .c = 1} : *n;
    k_ = *k;
    if (n != nullptr && (n_.c != 1 || n_.b != word_)) return false;
    if (k_.a != 1) {
        if (word_ > 1 || (m != nullptr && m_.a != 1)) return false;
        transposes_ = true;
    }
    // Words hold neighbours of the last sum.
    if (word_ > 1 && k_.letter != it_.sums.back().letter) return false;
    if (!has_rows_apart() || !has_few_indices()) return false;
    set_units(way);
    return true;
}

bool ProductWalk::has_few_indices() const {
    const auto beside = [](const Loops& indices) {
        return static_cast<int>(indices.size()) - (indices.empty() ? 0 : 1);
    };
    const int loops = 3 + beside(it_.rows) + beside(it_.columns);
    return loops <= kMostLoopsOfOne &&
           loops + static_cast<int>(it_.outer.size()) <= LoopNest::kMostLoops &&
           extent_of(it_.sums) / k_.extent <= kMostEntries;
}

// Rows of B and of C lie behind each other, and so do those of A, which may overlap.
bool ProductWalk::has_rows_apart() const {
    const std::int64_t columns = n_.extent;
    const bool a = transposes_ ? k_.a >= m_.extent : m_.a > 0 || m_.extent == 1;
    const bool c = m_.c >= columns || m_.extent == 1;
    const bool b = k_.b * word_ >= columns || block_stride_ > 0 || k_.extent == 1;
    const bool near = std::max({transposes_ ? k_.a : m_.a, k_.b, m_.c}) <= kFarthestRows;
    return a && b && c && k_.b > 0 && near;
}

void ProductWalk::set_units(const ProductWay& way) {
    column_unit_ = block_ > 0 ? block_ : linear_blocks(n_.extent).block;
    const std::int64_t wide = std::max(column_unit_, wide_columns(n_.extent));
    if (!way.packs_b && k_.extent <= kShortSum) column_unit_ = wide;
    depth_unit_ =
        equal_step(k_.extent, transposes_ ? kLongestTransposedDepth : kLongestDepth, word_);
    const bool is_simple = it_.sums.size() == 1 && it_.columns.size() <= 1;
    streams_ = !way.packs_b && !transposes_ && extent_of(it_.rows) <= kFewRows && is_simple &&
               bytes_b() > kStreamedPartOfL2 * machine_.l2;
    if (!streams_) return;
    column_unit_ = wide;
    depth_unit_ = std::min(k_.extent, streamed_rows());
    const std::int64_t rows = extent_of(it_.rows);
    if (rows > kVectorsRows || streamed_rows() == kStreamedRows) return;
    const auto held =
        static_cast<std::int64_t>(kVectorsPartOfL1 * machine_.l1) / (rows * size_of(DType::f32));
    const std::int64_t most = std::min(n_.extent / std::min(machine_.cores, kVectorsCores), held);
    column_unit_ = std::max(wide, equal_step(n_.extent, std::max(most, kBlockLanes), kBlockLanes));
}

// Of B in a unit, two of which stream side by side. On Zen 4 one row of A and 4096 x 4096 take 5.1
// ms with units of 16 in calls of 256 columns, 3.2 with 4 in calls of 512; 8 rows and 2048 x 2048
// 3.0 ms with units of 16, 0.9 with 8.
std::int64_t ProductWalk::streamed_rows() const {
    const std::int64_t rows = extent_of(it_.rows), most = machine_.rows_side_by_side;
    const std::int64_t together = rows <= kVectorsRows       ? most
                                  : rows <= 4 * kVectorsRows ? 2 * most
                                                             : 4 * most;
    return std::min(together / kStreamedUnits, kStreamedRows);
}

bool ProductWalk::ends() const {
    return std::all_of(it_.rows.begin(), it_.rows.end(),
                       [](const ProductIndex& row) { return row.bias == 0; });
}

double ProductWalk::bytes_a() const {
    return values_of(it_.rows) * values_of(it_.sums) * static_cast<double>(size_of(it_.dtype));
}

double ProductWalk::bytes_b() const {
    return values_of(it_.columns) * values_of(it_.sums) * static_cast<double>(size_of(it_.dtype));
}

double ProductWalk::bytes_c() const {
    return values_of(it_.rows) * values_of(it_.columns) * static_cast<double>(size_of(it_.c_type));
}

// How much longer arithmetic takes than its instructions.
double ProductWalk::waits() const {
    double factor = lost_lines();
    if (streams_ && !machine_.few_registers()) {
        factor *= k_.b * size_of(it_.dtype) > kFarApart ? kStreamedFar : kStreamed;
    }
    if (!way_.packs_b && extent_of(it_.rows) > kFewRows && k_.extent > kShortSum) {
        const bool is_far = bytes_b() > kStreamedPartOfL2 * machine_.l2 &&
                            k_.b * size_of(it_.dtype) >= kFarApart && !machine_.few_registers();
        factor *= is_far ? kFarPages : kFarRows;
    }
    const bool is_near = bytes_a() <= kStreamedPartOfL2 * machine_.l2;
    if (transposes_ && k_.a * size_of(it_.dtype) >= kFarTransposedRow) {
        factor *= is_near || machine_.few_registers() ? kFarTransposed : kFarTransposedOfMany;
    }
    if (transposes_ && !is_near && extent_of(it_.rows) * size_of(it_.dtype) > kFarApart) {
        factor *= extent_of(it_.columns) <= column_unit_ ? kFarColumnsOnce : kFarColumns;
    }
    return factor;
}

// How much longer arithmetic takes that waits for lines which rows far apart have driven out of the
// caches, where registers are few.
double ProductWalk::lost_lines() const {
    double factor = 1;
    const auto lose = [&](double bytes, std::int64_t row) {
        const double kept = machine_.lines_kept(row * size_of(it_.dtype));
        const double far = bytes > kStreamedPartOfL2 * machine_.l2 ? kLostFar : kLostNear;
        const auto depth =
            static_cast<double>(streams_ ? kStreamedUnits * depth_unit_ : depth_unit_);
        factor *= 1 + far * std::max(0.0, std::log2(depth / kept));
    };
    if (!machine_.few_registers()) return factor;
    if (!way_.packs_b) lose(bytes_b(), k_.b);
    if (!transposes_ || way_.packs_a) return factor;
    lose(bytes_a(), k_.a);
    const std::int64_t apart = std::min(k_.a * size_of(it_.dtype), kFarApart);
    const bool is_read_again = extent_of(it_.columns) > column_unit_;
    return factor *
           (is_read_again && apart * depth_unit_ > kPagesNear * kFarApart ? kLostPages : 1);
}

// What comes to the products of one value of all other sums, for all rows and a tile's columns.
double ProductWalk::cycles_of_part() const {
    if (instruction_.extent(LoopRole::row) > 1) return 0;
    const std::int64_t rows = machine_.few_registers() ? kTileRowsOfFew : kTileRows;
    const double tiles = ceil_div(m_.extent, rows);
    const auto line = static_cast<double>(kCacheLineBytes / size_of(it_.dtype));
    const double unread = 1 - std::min(1.0, static_cast<double>(k_.extent) / line);
    if (way_.packs_a || transposes_ || k_.extent == extent_of(it_.sums)) return tiles * kPart;
    const double lines = std::min(1.0, static_cast<double>(m_.a) / line);
    return tiles * kPart + static_cast<double>(m_.extent) * lines * unread * kShortLine;
}

// Of all sums for the rows and columns of one.
double ProductWalk::cycles_of_call() const {
    const std::int64_t rows = instruction_.extent(LoopRole::row);
    const std::int64_t columns = std::min(column_unit_, n_.extent);
    const double row_steps = ceil_div(m_.extent, rows);
    const double vectors = ceil_div(columns, instruction_.extent(LoopRole::column));
    const double entries = values_of(it_.sums) / static_cast<double>(k_.extent);
    const double steps = entries * ceil_div(k_.extent, instruction_.extent(LoopRole::sum));
    const double multiplies = row_steps * vectors / instruction_.starts_per_cycle(machine_);
    const double loads =
        (row_steps + vectors) * static_cast<double>(rows) / machine_.loads_per_cycle;
    const double parts = entries * std::ceil(vectors / kTileVectors) * cycles_of_part();
    const bool is_masked = columns % instruction_.extent(LoopRole::column) != 0 &&
                           instruction_.what().isa < Isa::avx512;
    return steps * std::max({multiplies, loads, kLeastStep}) * waits() + parts + kProductCall +
           static_cast<double>(m_.extent) * (2 * vectors + (is_masked ? kMaskedRow : 0));
}

double ProductWalk::cycles_of_packing() const {
    const auto of = [&](Stride stride, DType dtype, const auto&... classes) {
        CopiedOperand copied(stride, dtype);
        (copied.add(plain_.*classes, packed_.*classes), ...);
        return copied.cycles(machine_);
    };
    const auto outer = &StridedProduct::outer, rows = &StridedProduct::rows,
               columns = &StridedProduct::columns, sums = &StridedProduct::sums;
    double cycles = 0;
    if (way_.packs_a) cycles += of(&ProductIndex::a, it_.dtype, outer, rows, sums) / it_.uses_a;
    if (way_.packs_b) cycles += of(&ProductIndex::b, it_.b_type, outer, sums, columns) / it_.uses_b;
    if (way_.packs_c && it_.rows.size() + it_.columns.size() + it_.outer.size() > 0) {
        const double moved = of(&ProductIndex::c, it_.c_type, outer, rows, columns);
        cycles += it_.accumulates ? 2 * moved : moved;
    }
    return cycles;
}

double ProductWalk::cycles() const {
    const auto block =
        static_cast<double>(m_.extent) * static_cast<double>(std::min(column_unit_, n_.extent));
    const double calls =
        values_of(it_.outer) * values_of(it_.rows) * values_of(it_.columns) / block;
    const double end = ends() ? 0 : cycles_of_end(it_, machine_);
    return calls * cycles_of_call() + cycles_of_packing() + end;
}

}  // namespace dlprim
