// The bodies of a step, as a function in Python runs them: once, or again and again, in the core
// where a body is a network that has run for such arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "bindings/parts/loop.h"
#include "bindings/parts/rows.h"
#include "bindings/parts/run.h"

namespace dlprim::bindings {

class StepBodies {
public:
    // The piece is part of a plan that the run holds as long as this is used.
    StepBodies(std::shared_ptr<PartsRun> run, const Piece& piece)
        : run_(std::move(run)), bodies_(piece.bodies) {}

    // What the only body gives, for values of its inputs.
    py::list run(const py::sequence& inputs) const;
    // What the first of two gives, which take no inputs, or where the condition fails the second.
    py::tuple choose(const py::object& condition) const;

    // Runs the only body until so many have run, or the condition fails; None for a condition where
    // there is none and the body gives none. It is given the number of the run and the condition,
    // where there is one, the states, and a row of each of the arrays. Returns the states behind
    // the last run, and of each other output of the body the rows, None where nothing ran.
    py::tuple repeat(const py::object& condition, const py::sequence& states,
                     const py::sequence& rows, std::optional<std::int64_t> most,
                     std::int64_t max_bytes) const;

private:
    std::shared_ptr<PartsRun> run_;
    std::vector<PartBlock*> bodies_;
};

}  // namespace dlprim::bindings
