#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/register.h"
#include "bindings/rnn.h"

namespace dlprim::bindings {
namespace {

RnnPass parse_rnn_pass(const std::string& name) {
    std::string names;
    for (const RnnPass pass : kRnnPasses) {
        if (name == name_of(pass)) return pass;
        names += (names.empty() ? "" : ", ") + std::string(name_of(pass));
    }
    throw py::value_error("pass is '" + name + "', expected one of " + names);
}

py::dict rnn_scratch_bytes(const PyRnn& rnn) {
    py::dict bytes;
    bytes["inference"] = rnn.core().forward_scratch_bytes();
    bytes["forward"] = rnn.core().forward_scratch_bytes();
    bytes["backward"] = rnn.core().backward_scratch_bytes();
    return bytes;
}

py::dict schedules(const PyRnn& rnn) {
    py::dict texts;
    for (const RnnPass pass : kRnnPasses) {
        texts[py::str(std::string(name_of(pass)))] = to_string(rnn.core().schedule(pass));
    }
    return texts;
}

void set_schedule(PyRnn& rnn, const std::string& which, const std::string& text) {
    rnn.core().set_schedule(parse_rnn_pass(which), parse_schedule(text));
}

std::vector<std::string> candidates(const PyRnn& rnn, const std::string& which, int count) {
    std::vector<std::string> texts;
    for (const Schedule& schedule : rnn.core().candidates(parse_rnn_pass(which), count)) {
        texts.push_back(to_string(schedule));
    }
    return texts;
}

py::dict loops(const PyRnn& rnn, const std::string& which) {
    py::dict extents;
    for (const Loop& loop : rnn.core().loops(parse_rnn_pass(which))) {
        extents[py::str(std::string(1, loop.letter))] = loop.extent;
    }
    return extents;
}

}  // namespace

void register_rnn(py::module_& module) {
    py::class_<PyRnn>(module, "Rnn")
        .def(py::init<const std::string&, const std::vector<std::int64_t>&, const std::string&,
                      bool>(),
             py::arg("cell"), py::arg("extents"), py::arg("dtype"), py::arg("reverse"))
        .def("forward", &PyRnn::forward, py::arg("operands"))
        .def("backward", &PyRnn::backward, py::arg("operands"))
        .def("pack_weights", &PyRnn::pack_weights, py::arg("operands"))
        .def("transpose_weights", &PyRnn::transpose_weights, py::arg("operands"))
        .def("empty", &PyRnn::empty, py::arg("bytes"))
        .def("set_schedule", set_schedule, py::arg("which"), py::arg("text"))
        .def("candidates", candidates, py::arg("which"), py::arg("count"))
        .def("loops", loops, py::arg("which"))
        .def("describe", [](const PyRnn& rnn) { return rnn.core().describe(); })
        .def_property_readonly("packed_shapes", &PyRnn::packed_shapes)
        .def_property_readonly("flops", [](const PyRnn& rnn) { return rnn.core().shape().flops(); })
        .def_property_readonly("scratch_bytes", rnn_scratch_bytes)
        .def_property_readonly("schedules", schedules);
}

}  // namespace dlprim::bindings
