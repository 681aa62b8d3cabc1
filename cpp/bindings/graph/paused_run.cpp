#include "bindings/graph/paused_run.h"

#include <cstddef>
#include <stdexcept>

#include "bindings/arrays/array.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"

namespace dlprim::bindings {

void PyNetwork::pause(std::int64_t inputs, std::int64_t results) {
    const auto all = static_cast<std::int64_t>(inputs_.size());
    if (inputs < 0 || inputs > all || results < 0) {
        throw py::value_error("the first part takes " + std::to_string(inputs) + " inputs of " +
                              std::to_string(all) + " and makes " + std::to_string(results) +
                              " results, expected numbers within what there is");
    }
    core_.pause(inputs, results);
}

py::object PyNetwork::begin_if_exact(const py::object& self, const py::tuple& arrays) const {
    if (!core_.is_finished() || !core_.pauses()) {
        throw py::value_error("the network is not finished, or does not pause");
    }
    Taken taken;
    const auto first = static_cast<std::size_t>(core_.first_inputs());
    if (arrays.size() != first || !take_exact({arrays.begin(), arrays.end()}, taken))
        return py::none();
    taken.inputs.resize(inputs_.size(), nullptr);
    py::tuple made(core_.first_results());
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = new_result(i, taken);
    taken.results.resize(results_.size(), nullptr);
    std::unique_ptr<Network::Paused> run;
    {
        const WithoutGil without_gil;
        run =
            std::make_unique<Network::Paused>(core_, Network::Arrays{taken.inputs, taken.results});
    }
    py::object found = made.size() == 1 ? py::object(made[0]) : made;
    return py::make_tuple(std::make_unique<PausedRun>(self, arrays, std::move(run)),
                          std::move(found));
}

py::list PausedRun::resume(const py::sequence& arrays, const py::object& out, PyRunEvents* events) {
    const EndOfEvents ending(events);
    if (!run_) throw std::runtime_error("the run has ended, expected one call of resume");
    const auto& network = network_.cast<const PyNetwork&>();
    const Network& core = network.core();
    const auto inputs = static_cast<std::size_t>(core.first_inputs());
    const auto results = static_cast<std::size_t>(core.first_results());
    const std::size_t all_inputs = core.inputs().size(), all_results = core.results().size();
    const bool is_given = !out.is_none();
    if (arrays.size() != all_inputs - inputs ||
        (is_given && py::len(out) != all_results - results)) {
        throw py::type_error("resume takes " + std::to_string(all_inputs - inputs) +
                             " arrays and out " + std::to_string(all_results - results));
    }
    PyNetwork::Taken taken;
    taken.inputs.resize(inputs, nullptr);
    for (std::size_t i = inputs; i < all_inputs; ++i) {
        taken.inputs.push_back(network.take_input(i, py::object(arrays[i - inputs]), taken));
    }
    taken.results.resize(results, nullptr);
    for (std::size_t i = results; i < all_results; ++i) {
        py::object it = is_given ? py::object(out[py::int_(i - results)]) : py::none();
        if (it.is_none()) {
            it = network.new_result(i, taken);
        } else {
            taken.results.push_back(network.take_result(i, it, taken));
        }
        taken.made.push_back(it);
    }
    RunEvents* const told = events == nullptr ? nullptr : &events->begin();
    {
        const std::unique_ptr<Network::Paused> run = std::move(run_);  // spent, also where it fails
        const WithoutGil without_gil;
        run->resume({taken.inputs, taken.results}, told);
    }
    held_ = py::none();
    return py::cast(std::move(taken.made));
}

void register_paused_runs(py::module_& module) {
    py::class_<PausedRun>(module, "PausedRun")
        .def("resume", &PausedRun::resume, py::arg("arrays"), py::arg("out") = py::none(),
             py::arg("events") = nullptr);
    network_type(module)
        .def("pause", &PyNetwork::pause, py::arg("inputs"), py::arg("results"))
        .def(
            "begin_if_exact",
            [](const py::object& self, const py::tuple& arrays) {
                return self.cast<const PyNetwork&>().begin_if_exact(self, arrays);
            },
            py::arg("arrays"));
}

}  // namespace dlprim::bindings
