// A model in parts as callers run it: with arrays that are what it says of its inputs it runs at
// once; of anything else Python makes such arrays, or says what is wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/parts/run.h"

namespace dlprim::bindings {

// An input of a model, as a file says it.
struct InputPort {
    py::str name = {};
    int value = 0;
    // Nothing where only Python can tell what it may be.
    std::optional<py::dtype> dtype = {};
    // Extents, -1 for one that may be any; nothing where the rank may be, too.
    std::optional<Shape> shape = {};
    py::object otherwise = {};  // what it is where none is given; None where one has to be
};

class PartProgram {
public:
    // With `in_words` results are told in words of Python's, by `told` of the owner, always and not
    // only where they have texts.
    PartProgram(PartBlock& block, std::vector<InputPort> inputs, bool in_words);

    // The results as a list, of arrays by name; None where they are not just what is expected.
    py::object run_exact(const py::object& owner, const py::object& given) const;
    // The result, or a tuple of them, of arrays in the order of the inputs; None likewise.
    py::object call_exact(const py::object& owner, const py::tuple& given) const;
    // The results of values for all inputs, whatever they are.
    py::list run(const py::object& owner, const py::dict& given, const py::object& observer) const;

private:
    bool takes(const InputPort& port, py::handle given) const;
    Objects results_of(const py::object& owner, const Objects& given,
                       const py::object& observer) const;
    bool are_told(const Objects& results) const;

    PartBlock& block_;
    std::vector<InputPort> inputs_;
    bool is_plain_ = true;  // whether C++ can tell what all inputs may be
    bool in_words_;
};

}  // namespace dlprim::bindings
