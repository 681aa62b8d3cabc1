#include "primitives/products/product_pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "jit/machine.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Of the second cache: a packed B that exceeds it is packed in pieces. Of so many bytes at least,
// and where so many rows use them; where no thread is without one for longer.
constexpr double kStays = 0.5;
constexpr std::int64_t kLeastPiece = 128 * 1024;
constexpr std::int64_t kLeastRows = 128;
constexpr double kMostIdle = 0.1;

// The products apart from each other outside, and shared by threads; each in the order that is best
// for one of them.
std::vector<Schedule> candidates(const ProductMapping& mapping, const Contraction& whole,
                                 int count) {
    if (mapping.schedule) return {*mapping.schedule};
    const auto inner_loops = static_cast<std::ptrdiff_t>(whole.loops.size()) - mapping.outer_loops;
    Contraction one = whole;
    one.loops.erase(one.loops.begin() + inner_loops, one.loops.end());
    std::vector<Schedule> found = ranked_schedules(one, this_machine(), count);
    for (Schedule& schedule : found) {
        for (auto loop = whole.loops.rbegin(); loop != whole.loops.rend() - inner_loops; ++loop) {
            schedule.levels.insert(schedule.levels.begin(), {loop->letter, 1, true});
        }
    }
    return found;
}

char* at(const void* base, std::int64_t elements, DType dtype) {
    return static_cast<char*>(const_cast<void*>(base)) + elements * size_of(dtype);
}

}  // namespace

ProductPass::Packing::Packing(const std::optional<PackedOperand>& operand, bool unpacks) {
    if (!operand) return;
    const Layout& from = unpacks ? operand->packed : operand->plain;
    reorder.emplace(from, unpacks ? operand->plain : operand->packed);
    if (!unpacks) rim = operand->rim;
    bytes = aligned(operand->packed.bytes());
}

const void* ProductPass::Packing::pack(const void* plain, char* scratch) const {
    if (!reorder) return plain;
    float* row = reinterpret_cast<float*>(scratch) + rim.first;
    for (std::int64_t i = 0; i < rim.rows; ++i, row += rim.row) std::fill_n(row, rim.columns, 0.0F);
    reorder->run(plain, scratch);
    return scratch;
}

ProductPass::ProductPass(const StridedProduct& product, const ProductWay& way)
    : product_(way.exchanges ? exchanged(product) : product),
      way_(way),
      mapping_(mapping_of(product, way, this_machine())),
      a_(mapping_.a),
      b_(mapping_.b),
      c_(mapping_.c, true),
      before_(product_.accumulates ? mapping_.c : std::nullopt),
      bias_(mapping_.bias ? std::optional<RowStatement>(*mapping_.bias) : std::nullopt),
      nest_({.contraction = [this](std::int64_t) { return mapping_.contraction; },
             .candidates = [this](const Contraction& whole,
                                  int count) { return candidates(mapping_, whole, count); }}) {
    if (bias_) bias_bytes_ = aligned(extent_of(*mapping_.bias, false) * size_of(DType::f32));
    const Contraction& one = mapping_.contraction;
    flops_ = product_.flops();
    bytes_ =
        (one.bytes_a + one.bytes_b + one.bytes_c) * static_cast<double>(extent_of(product_.outer));
    pieces_ = pieces_of(product);
}

std::optional<ProductPass::Pieces> ProductPass::pieces_of(const StridedProduct& product) const {
    const auto along = way_.exchanges ? &StridedProduct::rows : &StridedProduct::columns;
    const std::int64_t columns = extent_of(product_.columns), all = b_.bytes;
    if (!b_.reorder || !product_.outer.empty() || (product.*along).size() != 1 ||
        static_cast<double>(all) <= kStays * this_machine().l2 ||
        extent_of(product_.rows) < kLeastRows) {
        return {};
    }
    const std::int64_t block = linear_blocks(columns).block;
    const std::int64_t bytes = all / columns * block;
    Pieces made{.columns = block * std::max<std::int64_t>(1, kLeastPiece / bytes)};
    made.count = (columns + made.columns - 1) / made.columns;
    if (made.count < 2) return {};
    const auto piece = [&](std::int64_t extent) {
        StridedProduct part = product;
        (part.*along).front().extent = extent;
        return std::make_shared<const ProductPass>(part, way_);
    };
    made.each = piece(made.columns);
    const std::int64_t rest = columns % made.columns;
    made.last = rest == 0 ? made.each : piece(rest);
    // To the same bits as the whole product.
    const std::array passes = {this, made.each.get(), made.last.get()};
    const bool in_order = std::all_of(passes.begin(), passes.end(), [](const ProductPass* it) {
        return ContractionPlan::sums_in_order(it->mapping_.contraction, it->nest_.schedule());
    });
    return in_order ? std::optional(made) : std::nullopt;
}

// Where threads share pieces evenly.
bool ProductPass::goes_in_pieces(int threads) const {
    if (!pieces_) return false;
    const double rounds = std::ceil(static_cast<double>(pieces_->count) / threads);
    return static_cast<double>(pieces_->count) >= (1 - kMostIdle) * rounds * threads;
}

void ProductPass::run_pieces(const Operands& arrays, void* c, Factors packed) const {
    const int b = place_of_b(), a = 1 - b;
    const auto place_of_a = static_cast<std::size_t>(a), place = static_cast<std::size_t>(b);
    const WorkspacePool::Lease scratch(*workspaces_, packed_bytes(a));
    if (packed[place_of_a] == nullptr) {
        packed[place_of_a] =
            packing(a).pack(first_of(a, arrays.factors[place_of_a]), scratch.data());
    }
    const ProductIndex& along = product_.columns.front();
    parallel_for(pieces_->count, [&](std::int64_t i) {
        const std::int64_t first = i * pieces_->columns;
        Operands its = arrays;
        its.factors[place] = at(its.factors[place], first * along.b, product_.b_type);
        if (its.bias != nullptr)
            its.bias = at(its.bias, first * along.bias, product_.end.bias_type);
        pieces_->at(i).run(its, at(c, first * along.c, product_.c_type), packed);
    });
}

void ProductPass::set_schedule(const Schedule& schedule) {
    if (schedule == nest_.schedule()) return;
    nest_.set_schedule(schedule);
    pieces_.reset();
}

const void* ProductPass::first_of(int operand, const void* array) const {
    const bool is_a = (operand == 0) != way_.exchanges;
    return is_a ? at(array, product_.offset_a, product_.dtype)
                : at(array, product_.offset_b, product_.b_type);
}

void ProductPass::pack(int operand, const void* array, char* scratch) const {
    packing(operand).pack(first_of(operand, array), scratch);
}

const float* ProductPass::bias(const void* array, char* scratch) const {
    if (!product_.end.bias || !way_.ends) return nullptr;
    const ProductEnd& end = product_.end;
    const char* const first = at(array, end.bias_offset, end.bias_type);
    if (!bias_) return reinterpret_cast<const float*>(first);
    bias_->run(std::array<const void*, 1>{first}, scratch);
    return reinterpret_cast<const float*>(scratch);
}

void ProductPass::run(const Operands& arrays, void* c, const Factors& packed) const {
    const WorkOf work(flops_, bytes_);
    if (packed[static_cast<std::size_t>(place_of_b())] == nullptr &&
        goes_in_pieces(num_threads())) {
        return run_pieces(arrays, c, packed);
    }
    const auto plan = nest_.typical_plan();
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, a_.bytes + b_.bytes + c_.bytes + bias_bytes_ +
                                                         threads * plan->scratch_bytes());
    ScratchCutter cutter(scratch.data());
    Factors ready = packed;
    for (int i = 0; i < 2; ++i) {
        const auto operand = static_cast<std::size_t>(i);
        if (ready[operand] != nullptr) continue;
        ready[operand] =
            packing(i).pack(first_of(i, arrays.factors[operand]), cutter.take(packed_bytes(i)));
    }
    char* const result = at(c, product_.offset_c, product_.c_type);
    char* const sums = cutter.take(c_.bytes);
    before_.pack(result, sums);
    const ContractionOperands operands{
        .a = ready[way_.exchanges ? 1 : 0],
        .b = ready[way_.exchanges ? 0 : 1],
        .c = c_.reorder ? sums : result,
        .scale = product_.scale == 1 ? nullptr : &product_.scale,
        .bias = bias(arrays.bias, cutter.take(bias_bytes_)),
        .accumulate = product_.accumulates,
    };
    plan->run(operands, cutter.take(threads * plan->scratch_bytes()), threads);
    if (c_.reorder) c_.reorder->run(operands.c, result);
}

std::string ProductPass::described() const {
    std::string letters;
    for (std::size_t i = 0; i < product_.names.size(); ++i) {
        letters += (i == 0 ? "where " : ", ") + std::string(1, static_cast<char>('a' + i)) +
                   " is " + product_.names[i];
    }
    return dlprim::described("kernel", nest_, {letters});
}

}  // namespace dlprim
