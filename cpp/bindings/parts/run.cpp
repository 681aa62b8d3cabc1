#include "bindings/parts/run.h"

#include <string>

#include <pybind11/stl.h>

#include "bindings/parts/repeat.h"

namespace dlprim::bindings {
namespace {

// With the lines that it comes from, which Python keeps beside an exception until it is caught.
py::object traced(const py::error_already_set& error) {
    py::object value = error.value();
    if (error.trace()) PyException_SetTraceback(value.ptr(), error.trace().ptr());
    return value;
}

// Bodies nest as deep as a file says.
class Deeper {
public:
    Deeper() {
        if (Py_EnterRecursiveCall(" in the bodies of a model") != 0) throw py::error_already_set();
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { Py_LeaveRecursiveCall(); }
};

}  // namespace

void PartsRun::set(int value, py::object to) {
    const auto place = static_cast<std::size_t>(value);
    if (place >= values_.size()) values_.resize(place + 1);
    values_[place] = std::move(to);
}

const py::object& PartsRun::known(int value) const {
    if (!at(value)) throw py::key_error("value " + std::to_string(value) + " is not there");
    return at(value);
}

std::shared_ptr<const BlockPlan> PartsRun::plan_of(PartBlock& it) {
    if (!it.plan()) owner_.attr("planned")(it.block());
    std::shared_ptr<const BlockPlan> plan = it.plan();
    if (!plan) return plan_of(it);  // another thread has found out more about the model since
    if (values_.size() < plan->values) values_.resize(plan->values);
    if (!values_[0]) values_[0] = py::none();
    return plan;
}

Objects PartsRun::block(PartBlock& it) {
    const Deeper deeper;
    for (;;) {
        const std::shared_ptr<const BlockPlan> plan = plan_of(it);
        try {
            for (const Piece& piece : plan->pieces) run_piece(piece);
        } catch (py::error_already_set& error) {
            if (!error.matches(owner_.attr("asking"))) throw;
            owner_.attr("part_from")(traced(error), plan->turn);
            continue;
        }
        Objects results;
        results.reserve(plan->outputs.size());
        for (const auto& [value, constant] : plan->outputs) {
            results.push_back(at(value) ? at(value) : constant);
        }
        return results;
    }
}

Objects PartsRun::body(PartBlock& it, const Objects& inputs) {
    if (inputs.size() != it.inputs().size()) {
        throw py::value_error("a body is given " + std::to_string(inputs.size()) +
                              " values, expected " + std::to_string(it.inputs().size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) set(it.inputs()[i], inputs[i]);
    return block(it);
}

void PartsRun::run_piece(const Piece& piece) {
    if (piece.networks != nullptr) {
        run_network(piece);
    } else {
        run_step(piece);
    }
    for (const int it : piece.done) values_[static_cast<std::size_t>(it)] = py::object();
}

void PartsRun::write(const Piece& piece, Objects& results) {
    for (std::size_t i = 0; i < piece.outputs.size(); ++i) {
        if (piece.outputs[i] >= 0) set(piece.outputs[i], std::move(results[i]));
    }
}

bool ran_known(const Piece& piece, const std::vector<SeenInput>& seen, Objects& results) {
    try {
        return piece.networks->run(seen, results);
    } catch (py::error_already_set& error) {  // of a step in Python
        piece.runner.attr("refuse")(traced(error));
        throw;
    } catch (const std::exception&) {
        return false;
    }
}

void PartsRun::run_network(const Piece& piece) {
    std::vector<SeenInput> seen;
    seen.reserve(piece.inputs.size());
    for (const int it : piece.inputs) seen.push_back({known(it)});
    Objects results;
    if (is_observed() || !ran_known(piece, seen, results)) {
        py::list arrays;
        for (const int it : piece.inputs) arrays.append(known(it));
        if (is_observed()) observer_(piece.runner, piece.runner.attr("named")(arrays));
        results = objects_of(piece.runner.attr("run")(arrays));
    }
    write(piece, results);
}

void PartsRun::run_step(const Piece& piece) {
    for (const auto& [value, constant] : piece.constants) set(value, constant);
    Objects operands;
    operands.reserve(piece.inputs.size());
    for (const int it : piece.inputs) operands.push_back(known(it));
    Objects results;
    try {
        results = step_results(piece, operands);
    } catch (py::error_already_set& error) {
        piece.runner.attr("refuse")(traced(error), list_of(operands));
    } catch (py::builtin_exception& error) {
        error.set_error();
        py::error_already_set set;
        piece.runner.attr("refuse")(set.value(), list_of(operands));
    }
    write(piece, results);
}

void PartsRun::require_kinds(const Piece& piece, const Objects& operands) const {
    for (std::size_t i = 0; i < operands.size(); ++i) {
        const py::object& it = operands[i];
        if (py::isinstance<py::array>(it)) {
            const py::dtype dtype = py::reinterpret_borrow<py::array>(it).dtype();
            if (!are_texts(dtype) || piece.takes_texts[i]) continue;
            throw py::value_error("input " + std::to_string(i) + " is of string, expected numbers");
        }
        if (!it.is_none() && !piece.takes_lists) {
            throw py::value_error("input " + std::to_string(i) + " is " + described_value(it) +
                                  ", expected an array");
        }
    }
}

Objects PartsRun::step_results(const Piece& piece, const Objects& operands) {
    if (!piece.function) return objects_of(piece.runner.attr("run")(list_of(operands)));
    require_kinds(piece, operands);
    py::object call = piece.runner.attr("call");
    if (!piece.bodies.empty()) call = call.attr("around")(StepBodies(shared_from_this(), piece));
    py::tuple arguments(operands.size() + 1);
    arguments[0] = call;
    for (std::size_t i = 0; i < operands.size(); ++i) arguments[i + 1] = operands[i];
    const auto made = py::reinterpret_steal<py::object>(
        PyObject_CallObject(piece.function.ptr(), arguments.ptr()));
    if (!made) throw py::error_already_set();
    Objects results = PyTuple_Check(made.ptr()) ? objects_of(made) : Objects{made};
    if (results.size() < piece.outputs.size()) {
        throw py::value_error("it gives " + std::to_string(results.size()) + " outputs, expected " +
                              std::to_string(piece.outputs.size()));
    }
    return results;
}

}  // namespace dlprim::bindings
