// A definition for arrays of known shapes and strides: groups of steps, each step a product of
// matrices or a statement of the row engine, and where between them results lie. Nothing is parsed,
// planned or generated when it is called.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/machine.h"
#include "lang/check.h"
#include "lang/definition.h"
#include "lang/fusion.h"
#include "lang/ranges.h"
#include "primitives/formulas/decisions.h"
#include "primitives/formulas/explanation.h"
#include "primitives/formulas/statement_binding.h"
#include "primitives/formulas/step_group.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class CompiledDefinition {
public:
    // What is known besides the definition: its parameters in their order, shapes of results that
    // it adds to or reads (of others they are not looked at), `given` as ranges_of() has it.
    // Results are dense.
    struct Arrays {
        std::vector<TensorView> parameters = {};
        Shapes results = {};
        Constants given = {};
        DType result_type = DType::f32;
        std::vector<DType> result_types = {};  // of the first ones
        Machine machine = this_machine();      // whose caches pieces are made for
        Choices choices = {};                  // instead of the cost models'
    };

    // Throws std::invalid_argument for what cannot be compiled, as a sentence.
    CompiledDefinition(const Definition& definition, const Arrays& arrays);

    const std::vector<TensorView>& results() const { return results_; }
    // Whether a result's array is read: the definition adds to it, or reads it before it is
    // written.
    bool is_in_out(std::size_t result) const;
    double flops() const { return flops_; }
    // Of what is between statements, in a call.
    std::int64_t scratch_bytes() const { return scratch_bytes_; }
    const Decisions& decisions() const { return decisions_; }

    // First elements of the arrays; a result shares no memory with a parameter. May be called by
    // several threads at once. The same bits for any number of threads of a call. Throws
    // std::out_of_range where a place that is read lies outside, before anything is written.
    void run(std::span<const void* const> parameters, std::span<void* const> results) const;

    // For every statement what runs it, and why.
    std::string described(const Explained& asked = {}) const;

private:
    // Where memory for what is between statements is taken from.
    using Scratch = std::function<ArrayPlace(std::int64_t bytes)>;
    using Loops = std::vector<StepGroup::Loop>;

    // Places that have to lie in an array.
    struct Check {
        BoundStatement statement = {};
        std::size_t operand = 0;
        std::int64_t parameter = 0;
        GatheredPlace place = {};
    };

    void add_tensors(const Arrays& arrays);
    DType type_of_temporary(const std::string& name, const Arrays& arrays) const;
    void add_checks(const StatementBinding& binding);
    void require_places(std::span<const void* const> parameters) const;
    void add_group(const StatementGroup& group, const Machine& machine);
    void add_pieces(const StatementGroup& group, const Loops& loops);
    void add_steps(StepGroup& to, const StatementBinding& binding, const Scratch& scratch);
    std::vector<StatementBinding> bound_group(const StatementGroup& group,
                                              const std::vector<PlacedTensor>& inner);
    std::vector<StatementBinding> with_rows_fused(const std::vector<StatementBinding>& bindings);
    std::vector<PlacedTensor> unstored_tensors(const std::vector<StatementBinding>& bindings) const;
    std::vector<PlacedTensor> inner_tensors(const StatementGroup& group, const Loops& loops,
                                            StepGroup& to) const;
    bool is_used_outside(const std::string& tensor, int first, int last) const;
    // Gives a tensor its place when it is first asked for.
    const PlacedTensor& placed(const std::string& name);
    void add_tensor(TensorView view, const ArrayPlace& place);
    // Takes the places back that were given from there on.
    void forget_places(std::size_t given, std::int64_t scratch_bytes);
    // Of steps one after the other, to which more are added.
    StepGroup& steps_in_turn();
    ArrayPlace scratch(std::int64_t bytes);

    Symbols symbols_;  // first: what is too deep for the stack is not even copied
    Definition definition_;
    Ranges ranges_;
    MentionsByName mentions_;
    std::vector<PlacedTensor> tensors_;
    std::map<std::string, std::size_t, std::less<>> numbers_;  // in `tensors_`
    std::vector<std::size_t> given_;  // tensors whose places are scratch, in order
    std::vector<TensorView> results_;
    std::vector<StepGroup> groups_;
    std::vector<Check> checks_;
    Decisions decisions_;
    std::int64_t scratch_bytes_ = 0;
    double flops_ = 0;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
