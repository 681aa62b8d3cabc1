// The one driver: a Contraction (what, contraction.h) in the order of a Schedule (loop_nest.h). A
// plan looks up every kernel and makes every batch table once; a run walks the nest and calls them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "brgemm/args.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim {

class Brgemm;

// What a schedule of the contraction is about.
std::vector<Loop> loops_of(const Contraction& contraction);

class ContractionPlan {
public:
    // Looks up every kernel that the nest will call. Throws std::invalid_argument when the
    // schedule does not fit the loops, shares a sum among threads, or splits the sum of a bfloat16
    // result (which is rounded once, so a block of it is summed in one go).
    ContractionPlan(Contraction contraction, const Schedule& schedule);
    ContractionPlan(const ContractionPlan&) = delete;
    ContractionPlan(ContractionPlan&&) = default;
    ~ContractionPlan() = default;
    ContractionPlan& operator=(const ContractionPlan&) = delete;
    ContractionPlan& operator=(ContractionPlan&&) = delete;

    // Scratch of one thread in bytes: a block of sums that are converted afterwards.
    std::int64_t scratch_bytes() const { return block_bytes_; }

    // Runs the nest on at most `threads` threads; `scratch` has scratch_bytes() for each. The
    // caller reads the number of threads once, for both.
    void run(const ContractionOperands& operands, void* scratch, int threads) const;

    // Where so many threads would wait for the last tasks, the plan of the same nest whose tasks
    // are for parts of their columns (contraction_builder.h), to the same bits; else this one.
    // Kept by this one.
    const ContractionPlan& for_threads(int threads) const;

    // Whether in such a plan each element of C is one sum from the first product to the last, so
    // that all plans of which this holds come to the same bits. Generates no kernel.
    static bool sums_in_order(const Contraction& contraction, const Schedule& schedule);

    // One body of the nest on the calling thread, for those who do more with a block than an
    // epilogue can while it is hot, and so run nest() themselves. `scratch` has scratch_bytes().
    // `tiles` as BrgemmArgs has it.
    void run_body(const ContractionOperands& operands, const LoopNest::Ranges& ranges,
                  void* scratch, std::uint64_t* tiles = nullptr) const;

    // The call of a kernel that a body is, null where it is none or more: for those who repeat
    // bodies on operands that only lie elsewhere, so that its arguments are found once.
    struct Call {
        const Brgemm* kernel = nullptr;
        BrgemmArgs args = {};  // of the operands that it was made for
    };
    Call call_of(const ContractionOperands& operands, const LoopNest::Ranges& ranges) const;

    // Whether a block of C holds sums that are not complete, so that what stood there is lost
    // before the epilogue.
    bool sums_pass_through_c() const { return sums_pass_through_c_; }

    const Contraction& contraction() const { return contraction_; }
    const LoopNest& nest() const { return nest_; }
    std::vector<std::string> kernel_names() const;  // each once, sorted

private:
    // A term with its batch tables and kernels.
    struct PreparedTerm {
        Term term;
        std::vector<std::int64_t> offsets_a = {};  // [index of the batch loop][entry]
        std::vector<std::int64_t> offsets_b = {};
        std::vector<const Brgemm*> kernels = {};  // by Variant::index

        std::int64_t entries() const { return static_cast<std::int64_t>(term.entries_a.size()); }
    };
    struct PreparedClass {
        std::vector<PreparedTerm> terms;
        bool sums_apart = false;  // summed in scratch as float32, then converted
    };
    // Which of a term's kernels: blocks at the edges are smaller, the first call of a sum
    // overwrites C and the last one applies the epilogue.
    struct Variant {
        std::int64_t rows = 0;  // index in row_sizes_
        bool last_columns = false;
        bool last_depth = false;
        bool first = false;
        bool last = false;

        static constexpr std::size_t kPerRows = 16;
        static Variant at(std::size_t index);
        std::size_t index() const;
    };
    // A loop whose calls share a block of B: indices of it that do, and of a call.
    struct Sharing {
        int loop = -1;
        std::int64_t extent = 1;
        std::int64_t step = 1;
    };
    struct Block;
    using Pointer = std::shared_ptr<const ContractionPlan>;

    ContractionPlan(Contraction contraction, const Schedule& schedule, bool with_kernels);
    // Calls body(term, Variant::index, spec) for every kernel that the nest will call.
    template <class Body>
    void for_kernels(const Body& body);
    Pointer finer(int threads) const;
    Pointer of_parts(std::int64_t parts) const;
    bool sums_as(const ContractionPlan& whole) const;
    void run_shared(const ContractionOperands& operands, void* scratch, int threads) const;
    std::int64_t columns_at(const LoopNest::Ranges& ranges) const;
    bool has_last_depth(const Term& term) const;
    PreparedTerm prepared(const Term& term) const;
    bool is_needed(const Term& term, bool sums_apart, const Variant& variant) const;
    std::int64_t columns_of(const Variant& variant) const;
    BrgemmSpec spec_of(const Term& term, bool sums_apart, const Variant& variant) const;

    void share_rows();
    void share_far_b(const Schedule& schedule);
    void set_ahead(const LoopNest::Ranges& ranges, Block& block) const;
    std::int64_t begin_of_share(const LoopNest::Ranges& ranges) const;
    Block block_at(const ContractionOperands& operands, const LoopNest::Ranges& ranges) const;
    void run_block(const Block& block) const;
    void run_term(const PreparedTerm& prepared, const Block& block) const;
    bool ends_short(const PreparedTerm& prepared, const Block& block) const;
    Variant variant_of(const PreparedTerm& prepared, const Block& block, Range blocks,
                       bool last_depth) const;
    Call call_of(const PreparedTerm& prepared, const Block& block, Range blocks,
                 const Variant& variant) const;
    void call(const PreparedTerm& prepared, const Block& block, Range blocks,
              bool last_depth) const;

    Contraction contraction_;
    LoopNest nest_;
    std::vector<PreparedClass> classes_;
    std::vector<std::int64_t> row_sizes_;  // of the blocks that the rows loop makes, sorted
    std::vector<std::shared_ptr<const Brgemm>> kernels_;
    std::vector<int> ahead_;        // loops that lead to the next operands, the innermost first
    std::vector<Sharing> sharing_;  // with Fetching::far_b, from the outside in
    std::int64_t fetch_rows_ = 0;   // of C in all that they cover
    bool sum_is_split_ = false;
    bool sums_pass_through_c_ = false;
    bool streams_ = false;  // C exceeds the caches, so zeros bypass them
    std::int64_t block_bytes_ = 0;
    // Plans for parts of columns, null where these would have other bits, and which one is for how
    // many threads, null where it is this one.
    mutable std::map<std::int64_t, Pointer> by_parts_;
    mutable std::map<int, Pointer> by_threads_;
};

}  // namespace dlprim
