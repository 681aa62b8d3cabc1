// A run of a network in two calls of Python: the caller makes gradients of the first results, or
// whatever the second part takes, meanwhile.
#pragma once

#include <memory>
#include <utility>

#include "bindings/graph/network.h"

namespace dlprim::bindings {

// A run that waits for what the second part of its network takes. It holds the network and its
// arrays.
class PausedRun {
public:
    PausedRun(py::object network, py::object held, std::unique_ptr<Network::Paused> run)
        : network_(std::move(network)), held_(std::move(held)), run_(std::move(run)) {}

    // The results of the second part, new ones or those of `out`. May be called once. `events` may
    // be null; they end with this in any case.
    py::list resume(const py::sequence& arrays, const py::object& out, PyRunEvents* events);

private:
    py::object network_;
    py::object held_;
    std::unique_ptr<Network::Paused> run_;
};

}  // namespace dlprim::bindings
