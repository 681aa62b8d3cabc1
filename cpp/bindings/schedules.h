// What Python may see and change of the schedules of a primitive, the same for every one whose
// core has passes with a Schedule each.
#pragma once

#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/array.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/nest/pass_kind.h"

namespace dlprim::bindings {

inline PassKind parse_pass(const std::string& name) {
    for (const PassKind pass : kPassKinds) {
        if (name == name_of(pass)) return pass;
    }
    throw py::value_error("pass is '" + name +
                          "', expected 'forward', 'backward_data' or 'backward_weights'");
}

// `all` gives the passes of a primitive, `scheduled` those that have a schedule.
template <class Primitive>
void define_schedules(py::class_<Primitive>& type, std::vector<PassKind> (*all)(const Primitive&),
                      std::vector<PassKind> (*scheduled)(const Primitive&)) {
    type.def(
            "set_schedule",
            [](Primitive& it, const std::string& which, const std::string& text) {
                it.core().set_schedule(parse_pass(which), parse_schedule(text));
            },
            py::arg("which"), py::arg("text"))
        .def(
            "candidates",
            [](const Primitive& it, const std::string& which, int count) {
                std::vector<std::string> texts;
                for (const Schedule& each : it.core().candidates(parse_pass(which), count)) {
                    texts.push_back(to_string(each));
                }
                return texts;
            },
            py::arg("which"), py::arg("count"))
        .def(
            "loops",
            [](const Primitive& it, const std::string& which) {
                py::dict extents;
                for (const Loop& loop : it.core().loops(parse_pass(which))) {
                    extents[py::str(std::string(1, loop.letter))] = loop.extent;
                }
                return extents;
            },
            py::arg("which"))
        .def("describe", [](const Primitive& it) { return it.core().describe(); })
        .def_property_readonly("scratch_bytes",
                               [all](const Primitive& it) {
                                   py::dict bytes;
                                   for (const PassKind pass : all(it)) {
                                       bytes[py::str(std::string(name_of(pass)))] =
                                           it.core().scratch_bytes(pass);
                                   }
                                   return bytes;
                               })
        .def_property_readonly("schedules", [scheduled](const Primitive& it) {
            py::dict texts;
            for (const PassKind pass : scheduled(it)) {
                texts[py::str(std::string(name_of(pass)))] = to_string(it.core().schedule(pass));
            }
            return texts;
        });
}

}  // namespace dlprim::bindings
