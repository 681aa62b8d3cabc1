#include "bindings/graph/run_events.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace dlprim::bindings {

PyRunEvents::PyRunEvents() : process_(getpid()) {}

void PyRunEvents::require_own_process() const {
    if (getpid() == process_) return;
    throw std::runtime_error(
        "the events were made in another process, whose run this one does not have");
}

RunEvents& PyRunEvents::begin() {
    require_own_process();
    return core_;
}

bool PyRunEvents::wait(std::size_t array, double seconds) {
    using Seconds = std::chrono::duration<double>;
    using Clock = std::chrono::steady_clock;
    constexpr Seconds kBetweenSignals(0.1);
    require_own_process();
    const auto begin = Clock::now();
    for (;;) {
        const Seconds left = Seconds(seconds) - (Clock::now() - begin);
        const auto slice = std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::clamp(left, Seconds(0), kBetweenSignals));
        const auto outcome = without_gil([&] { return core_.wait(array, slice); });
        if (outcome != RunEvents::Outcome::late) return outcome == RunEvents::Outcome::final;
        if (left <= kBetweenSignals) return false;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
}

py::list PyNetwork::run(const py::sequence& arrays, const py::object& out,
                        PyRunEvents* events) const {
    const EndOfEvents ending(events);
    Taken taken = take(arrays, out);
    RunEvents* const told = events == nullptr ? nullptr : &events->begin();
    {
        const WithoutGil without_gil;
        core_.run({taken.inputs, taken.results}, told);
    }
    return py::cast(std::move(taken.made));
}

void register_run_events(py::module_& module) {
    py::class_<PyRunEvents>(module, "RunEvents")
        .def(py::init<>())
        .def("wait", &PyRunEvents::wait, py::arg("array"), py::arg("seconds"))
        .def("end", &PyRunEvents::end);
    network_type(module)
        .def("run", &PyNetwork::run, py::arg("arrays"), py::arg("out") = py::none(),
             py::arg("events") = nullptr)
        .def(
            "final_after",
            [](const PyNetwork& it, std::size_t array) { return it.core().final_after(array); },
            py::arg("array"));
}

}  // namespace dlprim::bindings
