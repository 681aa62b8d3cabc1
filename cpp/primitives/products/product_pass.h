// A product of matrices, ready to run: the cheapest way, its packings, and the nest around the
// kernel. A large B is packed in pieces of its columns, each in front of its products, so that the
// copy does not leave the caches (1024 x 768 by 768 x 3072 on an Intel Emerald Rapids: 130 GFLOP/s
// whole, 150 in pieces).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "primitives/mapping/product_mapping.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/reorder/reorder.h"
#include "primitives/statements/row_statement.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class ProductPass {
public:
    // By a way that exists.
    ProductPass(const StridedProduct& product, const ProductWay& way);

    // First elements of the arrays, as the statement has them: the factors, and the bias where the
    // product has one. Results must not overlap operands. The same bits for any number of threads.
    // `packed`: what pack() made of the factors, or null.
    using Factors = std::array<const void*, 2>;
    struct Operands {
        Factors factors = {};
        const void* bias = nullptr;
    };
    void run(const Operands& arrays, void* c, const Factors& packed = {}) const;

    // Of an operand, 0 or 1: how many bytes it is packed into by each run, 0 for none, and that in
    // front of several.
    std::int64_t packed_bytes(int operand) const { return packing(operand).bytes; }
    void pack(int operand, const void* array, char* scratch) const;

    // Of the whole product.
    const ScheduledNest& nest() const { return nest_; }
    // Throws std::invalid_argument where it cannot be followed. One that is not the nest's own is
    // followed without pieces.
    void set_schedule(const Schedule& schedule);
    std::string described() const;

private:
    // From the array to what the kernel reads or writes.
    struct Packing {
        explicit Packing(const std::optional<PackedOperand>& operand, bool unpacks = false);

        const void* pack(const void* plain, char* scratch) const;

        std::optional<Reorder> reorder = {};
        PackedOperand::Rim rim = {};
        std::int64_t bytes = 0;  // of scratch
    };

    // Of so many columns, the last one of what is left.
    struct Pieces {
        std::int64_t columns = 0;
        std::int64_t count = 0;
        std::shared_ptr<const ProductPass> each = {};
        std::shared_ptr<const ProductPass> last = {};

        const ProductPass& at(std::int64_t i) const { return i + 1 < count ? *each : *last; }
    };

    std::optional<Pieces> pieces_of(const StridedProduct& product) const;
    bool goes_in_pieces(int threads) const;
    void run_pieces(const Operands& arrays, void* c, Factors packed) const;

    int place_of_b() const { return way_.exchanges ? 0 : 1; }
    const Packing& packing(int operand) const { return (operand == 0) != way_.exchanges ? a_ : b_; }
    const void* first_of(int operand, const void* array) const;
    const float* bias(const void* array, char* scratch) const;

    StridedProduct product_;
    ProductWay way_;
    ProductMapping mapping_;
    Packing a_;
    Packing b_;
    Packing c_;
    Packing before_;                    // what stands in a result that is packed and added to
    std::optional<RowStatement> bias_;  // the copy
    std::int64_t bias_bytes_ = 0;
    double flops_ = 0;
    double bytes_ = 0;
    ScheduledPass nest_;
    std::optional<Pieces> pieces_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
