// What Python may see and change of a primitive, the same for every one whose core has passes with
// a Schedule each: the loop nests, and the arrays by the table of its forms.
#pragma once

#include <string>
#include <string_view>

#include "bindings/arrays/call.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim::bindings {

inline py::str text_of(std::string_view name) { return {name.data(), name.size()}; }

// The pass of that name, of `all`.
template <class Passes>
auto parse_pass(const Passes& all, const std::string& name) {
    std::string names;
    for (const auto pass : all) {
        if (name == name_of(pass)) return pass;
        names += (names.empty() ? "" : ", ") + std::string(name_of(pass));
    }
    throw py::value_error("pass is '" + name + "', expected one of " + names);
}

// `all` are the passes there can be, `scheduled` gives those of a primitive that have a schedule.
template <class Primitive, class Passes, class Scheduled>
void define_schedules(py::class_<Primitive>& type, const Passes& all, Scheduled scheduled) {
    type.def("set_schedule",
             [all](Primitive& it, const std::string& which, const std::string& text) {
                 it.core().set_schedule(parse_pass(all, which), parse_schedule(text));
             })
        .def("candidates",
             [all](const Primitive& it, const std::string& which, int count) {
                 py::list texts;
                 for (const Schedule& each : it.core().candidates(parse_pass(all, which), count)) {
                     texts.append(to_string(each));
                 }
                 return texts;
             })
        .def("loops",
             [all](const Primitive& it, const std::string& which) {
                 py::dict extents;
                 for (const Loop& loop : it.core().loops(parse_pass(all, which))) {
                     extents[py::str(std::string(1, loop.letter))] = loop.extent;
                 }
                 return extents;
             })
        .def("describe", [](const Primitive& it) { return it.core().describe(); })
        .def_property_readonly("schedules", [scheduled](const Primitive& it) {
            py::dict texts;
            for (const auto pass : scheduled(it.core())) {
                texts[text_of(name_of(pass))] = to_string(it.core().schedule(pass));
            }
            return texts;
        });
}

// `shapes` and `plain_shapes` by the names of operands; between them `pack` and `unpack`, and new
// packed arrays.
template <class Primitive>
void define_forms(py::class_<Primitive>& type) {
    type.def_property_readonly("shapes", [](const Primitive& it) { return it.forms().shapes(); })
        .def_property_readonly("plain_shapes",
                               [](const Primitive& it) { return it.forms().plain_shapes(); })
        .def("pack",
             [](const Primitive& it, const std::string& form, const std::string& name,
                py::handle plain,
                py::handle out) { return pack(it.forms()[form], name.c_str(), plain, out); })
        .def("unpack",
             [](const Primitive& it, const std::string& form, py::handle packed, py::handle out) {
                 return unpack(it.forms().matching(form, packed), form.c_str(), packed, out);
             })
        .def("new", [](const Primitive& it, const std::string& form, py::handle like) {
            const Form& of = it.forms()[form];
            return new_array(of.packed(), dtype_for(of.dtype(), like));
        });
}

}  // namespace dlprim::bindings
