// How the kernel goes through a product of matrices: which index is its m, its n and its k, which
// operands it reads packed. It needs neighbours along n in B and C, along k or m in A; what is not
// so in memory is so in a packed copy. Every index of a class can be the kernel's, so there are as
// many ways as there are choices that leave such neighbours; what is left of the sums are entries
// of its batch, all else loops around it.
#pragma once

#include <cstdint>
#include <string>

#include "jit/machine.h"
#include "primitives/mapping/instruction_form.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim {

struct ProductWay {
    bool exchanges = false;  // computes the transposed product
    bool packs_a = false;    // A and B as the kernel sees them, so after exchanging
    bool packs_b = false;
    bool packs_c = false;  // the result is computed elsewhere and then moved
    bool ends = true;      // the end of the product is the kernel's
    // Letters of the kernel's loops, and all of the statement's indices that are in them; 0 where
    // the product has none.
    struct Loop {
        char letter = 0;
        std::uint32_t members = 0;

        friend bool operator==(const Loop&, const Loop&) = default;
    };
    Loop m = {};
    Loop n = {};
    Loop k = {};
    double cycles = 0;
};

// "A in place, B packed, C in place; m: n, n: k, k: c, batch: r s"
std::string to_string(const ProductWay& way, const StridedProduct& product);

// "A in place, B packed, C in place"
std::string said_of_packing(bool a, bool b, bool c);

// "c r" of the indices whose bits are set.
std::string names_of(std::uint32_t members, const StridedProduct& product);

class ProductWalk {
public:
    // What a kernel does with elements of these types here is taken from the table of instructions.
    ProductWalk(const StridedProduct& product, bool exchanges, const Machine& machine);

    // Of the product as the kernel sees it, with neighbours as one.
    const StridedProduct& product() const { return base_; }

    // False where the kernel cannot. What follows is of the way that was followed last.
    bool follow(const ProductWay& way);
    double cycles() const;
    // Whether the kernel has what it needs for the end: a bias is one value for each of its
    // columns, for all rows the same.
    bool ends() const;

    // Indices of every class in the order in which they are packed: of the arrays as they are, of
    // what the kernel reads and writes, and of that with neighbours as one.
    const StridedProduct& plain() const { return plain_; }
    const StridedProduct& packed() const { return packed_; }
    const StridedProduct& walked() const { return it_; }

    const ProductIndex& m() const { return m_; }
    const ProductIndex& n() const { return n_; }
    const ProductIndex& k() const { return k_; }
    // Elements of k and of n, of a call at most.
    std::int64_t column_unit() const { return column_unit_; }
    std::int64_t depth_unit() const { return depth_unit_; }
    bool transposes() const { return transposes_; }  // A is [k][m]
    // B is read where it lies while it comes from memory, all else in the caches; so many units of
    // the sum in a call.
    bool streams() const { return streams_; }
    static constexpr std::int64_t kStreamedUnits = 2;
    std::int64_t word() const { return word_; }
    // Columns in a block of a packed B, 0 where they are not cut, and elements between blocks.
    std::int64_t block() const { return block_; }
    std::int64_t block_stride() const { return block_stride_; }
    // Of one of the products apart from each other.
    double bytes_a() const;
    double bytes_b() const;
    double bytes_c() const;

private:
    void pack_b();
    std::int64_t packed_block(std::int64_t columns) const;
    std::int64_t streamed_rows() const;
    bool choose(const ProductWay& way);
    bool has_rows_apart() const;
    bool has_few_indices() const;
    void set_units(const ProductWay& way);
    double waits() const;
    double lost_lines() const;
    double cycles_of_part() const;
    double cycles_of_call() const;
    double cycles_of_packing() const;

    const Machine& machine_;
    const InstructionForm& instruction_;
    StridedProduct base_;
    StridedProduct plain_ = {};
    StridedProduct packed_ = {};
    StridedProduct it_ = {};
    ProductWay way_ = {};
    ProductIndex m_ = {};
    ProductIndex n_ = {};
    ProductIndex k_ = {};
    std::int64_t word_ = 1;
    std::int64_t block_ = 0;
    std::int64_t block_stride_ = 0;
    std::int64_t column_unit_ = 1;
    std::int64_t depth_unit_ = 1;
    bool transposes_ = false;
    bool streams_ = false;
};

}  // namespace dlprim
