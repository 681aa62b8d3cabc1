// A network as Python builds it: values are numbers, and every primitive's binding adds a method
// that makes a step of it (`network_type(module).def("conv2d", ...)`), next to the method that runs
// it on arrays. What such a step reads and writes is checked here once, as a Call checks arrays.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays/form.h"
#include "bindings/graph/run_events.h"
#include "bindings/graph/state_arrays.h"
#include "graph/network.h"

namespace dlprim::bindings {

class PyNetwork {
public:
    int input(const Shape& shape, const py::object& dtype, const std::string& name);
    int state(const Shape& shape, const py::object& dtype, const std::string& name);
    int next_of(int state);
    int constant(const py::array& array);
    int temporary(const Shape& shape, const py::object& dtype);
    // Dense where there are no strides; both are bytes.
    int view(int of, const Shape& shape, const py::object& dtype, const py::object& strides,
             std::int64_t offset);
    void finish(const std::vector<int>& results);
    // As of the core's network; numbers are checked.
    void pause(std::int64_t inputs, std::int64_t results);

    // New arrays, or those of `out`, which are written. All arrays are checked before a step runs.
    // `events` may be null; they end with this in any case.
    py::list run(const py::sequence& arrays, const py::object& out, PyRunEvents* events) const;
    // New arrays as `results`, for ndarrays that are just what the inputs are and lie in C order,
    // those of states apart from all others; false for anything else.
    bool run_exact(const std::vector<py::handle>& arrays, std::vector<py::object>& results) const;
    // The same: the result, a tuple where there are several, or None.
    py::object run_if_exact(const py::tuple& arrays) const;
    // A run of the first part of a network that pauses, as run_if_exact() of the inputs that it
    // takes: a pair of the run and its result, or a tuple of them.
    py::object begin_if_exact(const py::object& self, const py::tuple& arrays) const;
    // Whether this is an ndarray that is just what an input is and lies in C order.
    bool takes(std::size_t number, const py::object& array) const;
    // (label, seconds, kind) of every step, of one run.
    py::list profile(const py::sequence& arrays) const;
    py::object priced(int threads) const;

    const Network& core() const { return core_; }
    void add(NetworkStep step) {
        step.label = label_or_number(step.label);
        core_.add(std::move(step));
    }
    // What the next step is called.
    std::string label_or_number(const std::string& label) const {
        return label.empty() ? std::to_string(core_.steps()) : label;
    }

    const py::dtype& dtype(int value) const { return looks_.at(index(value)).dtype; }
    // The form that a value is packed in, a null object where that is not known.
    py::object& packed_as(int value) { return looks_.at(index(value)).packed_as; }

private:
    friend class PausedRun;

    struct Look {
        py::dtype dtype;
        py::object packed_as = {};
    };
    // Checked arrays of a run.
    struct Taken {
        std::vector<const void*> inputs = {};
        std::vector<void*> results = {};
        std::vector<py::object> held = {};  // inputs, which a caller's list may lose meanwhile
        std::vector<py::object> made = {};  // what a run gives
    };

    static std::size_t index(int value) { return static_cast<std::size_t>(value); }
    int known(int value, const py::dtype& dtype);
    int named_input(int value, const py::dtype& dtype, const std::string& name);
    Taken take(const py::sequence& arrays, const py::object& out) const;
    // Puts addresses of the first arrays into `taken`, or says that one is not just as it should
    // be.
    bool take_exact(const std::vector<py::handle>& arrays, Taken& taken) const;
    // A new array for a result, its address put into `taken`.
    py::object new_result(std::size_t number, Taken& taken) const;
    const void* take_input(std::size_t number, const py::object& array, Taken& taken) const;
    void* take_result(std::size_t number, const py::object& array, const Taken& taken) const;
    void require_states_apart(const std::vector<const void*>& inputs) const;

    Network core_;
    std::vector<Look> looks_;  // of all values
    std::vector<int> inputs_;
    std::vector<std::string> names_;  // of inputs
    std::vector<int> results_;
    std::vector<py::array> constants_;
    std::vector<ByteRange> fixed_;  // where constants lie
    StateArrays states_;
};

// To add methods to; made before all that do.
inline py::class_<PyNetwork> network_type(const py::module_& module) {
    return py::class_<PyNetwork>(module.attr("Network"));
}

// The values of a step that is being made, by the names of the primitive's arguments. Each returns
// the number, which Addresses takes. Errors are sentences that begin with the step and the name.
class StepValues {
public:
    // `values` are numbers; -1 or nothing where there is none.
    StepValues(PyNetwork& network, const char* kind, const std::string& label, py::dict values);

    // Dense, of this type, shape and form.
    int operand(const char* name, const Expected& expected);
    int optional(const char* name, const Expected& expected) {
        return number(name) < 0 ? -1 : operand(name, expected);
    }
    // It may be one of the values `replaced`.
    int result(const char* name, const Expected& expected,
               std::initializer_list<int> replaced = {});

    // What is checked elsewhere.
    int read(const char* name) {
        step_.reads.push_back(number(name));
        return step_.reads.back();
    }

    int write(const char* name) {
        step_.writes.push_back(number(name));
        return step_.writes.back();
    }

    int number(const char* name) const;
    // Of a value that is there.
    const NetworkTensor& tensor(const char* name) const;
    const py::object& packed_as(const char* name) const { return network_.packed_as(number(name)); }
    [[noreturn]] void refuse(const std::string& sentence) const;

    // `flops` as in NetworkStep.
    template <class Run>
    void add(Run run, double flops = 0) {
        require_all_used();
        step_.flops = flops;
        step_.run = std::move(run);
        network_.add(std::move(step_));
    }

private:
    int take(const char* name, const Expected& expected);
    void require_all_used() const;

    PyNetwork& network_;
    py::dict values_;
    std::vector<std::pair<std::string_view, int>> numbers_;  // what the dictionary holds
    NetworkStep step_;
};

}  // namespace dlprim::bindings
