// What runs of a block of a model, one piece after the other: networks, and between them steps on
// the values of a run. Values have numbers, and Python plans which piece reads and writes which.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bindings/parts/known_networks.h"

namespace dlprim::bindings {

class PartBlock;

// Number 0 is that of operands that are left out: nothing.
struct Piece {
    py::object runner = {};  // the part or step in Python, of which this is the fast way
    std::vector<int> inputs = {};
    std::vector<int> outputs = {};      // -1 for one that has no name
    std::vector<int> done = {};         // what nothing reads behind it
    KnownNetworks* networks = nullptr;  // of a network
    // Of a step on values; null where only its runner knows how it runs.
    py::object function = {};
    std::vector<PartBlock*> bodies = {};
    std::vector<std::pair<int, py::object>> constants = {};
    std::vector<bool> takes_texts = {};  // of each input
    bool takes_lists = true;
};

struct BlockPlan {
    std::vector<Piece> pieces = {};
    // With what a value is where no piece writes it: a constant, or a null object.
    std::vector<std::pair<int, py::object>> outputs = {};
    std::size_t values = 0;   // of the model
    bool is_network = false;  // and nothing else
    int turn = 0;             // how often the model was planned anew before
};

class PartBlock {
public:
    // `inputs` are what a body is given each time.
    PartBlock(py::object block, std::vector<int> inputs)
        : block_(std::move(block)), inputs_(std::move(inputs)) {}

    // Pieces are dicts of what a Piece has.
    void set_plan(const py::sequence& pieces, std::vector<std::pair<int, py::object>> outputs,
                  std::size_t values, std::pair<bool, int> is_network_and_turn);
    void forget() { plan_.reset(); }

    const py::object& block() const { return block_; }
    const std::vector<int>& inputs() const { return inputs_; }
    // A null pointer where Python has to make it.
    const std::shared_ptr<const BlockPlan>& plan() const { return plan_; }

private:
    py::object block_;
    std::vector<int> inputs_;
    std::shared_ptr<const BlockPlan> plan_ = {};
};

}  // namespace dlprim::bindings
