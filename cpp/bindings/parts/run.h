// A run of a model in parts: the values that there are, by number, and the pieces of blocks on them
// in their order. Names in bodies are others than those outside, so one list of values is enough.
// The GIL is held but while networks run. What only Python knows (how a block is planned, a network
// for arrays that look new) is asked of `owner`, the Executor, which is no member of anything that
// it keeps itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/parts/block.h"
#include "bindings/parts/objects.h"

namespace dlprim::bindings {

// Whether there is a network for these inputs that ran. What goes wrong in the core goes wrong
// again where Python runs it, which has words for it.
bool ran_known(const Piece& piece, const std::vector<SeenInput>& seen, Objects& results);

class PartsRun : public std::enable_shared_from_this<PartsRun> {
public:
    // `observer` is given every network that runs, and its arrays by name; or None.
    PartsRun(py::object owner, py::object observer)
        : owner_(std::move(owner)), observer_(std::move(observer)) {}

    void set(int value, py::object to);
    const py::object& at(int value) const { return values_[static_cast<std::size_t>(value)]; }

    // What a block gives. Where steps ask for elements, it is planned anew and goes on from its
    // beginning: values do not change.
    Objects block(PartBlock& it);
    // What a body gives, for values of its inputs.
    Objects body(PartBlock& it, const Objects& inputs);

    std::shared_ptr<const BlockPlan> plan_of(PartBlock& it);
    const py::object& owner() const { return owner_; }
    bool is_observed() const { return !observer_.is_none(); }

private:
    const py::object& known(int value) const;
    void run_piece(const Piece& piece);
    void run_network(const Piece& piece);
    void run_step(const Piece& piece);
    Objects step_results(const Piece& piece, const Objects& operands);
    void require_kinds(const Piece& piece, const Objects& operands) const;
    void write(const Piece& piece, Objects& results);

    py::object owner_;
    py::object observer_;
    Objects values_ = {};
};

}  // namespace dlprim::bindings
