// What the bindings of all primitives have in common: a core, the table of its forms, and what
// Python may see and change of both, which is loop nests, shapes, and arrays plain to packed and
// back.
#pragma once

#include <string>
#include <string_view>

#include "bindings/arrays/call.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim::bindings {

inline py::str text_of(std::string_view name) { return {name.data(), name.size()}; }

// A primitive with src, dst, weights and a bias. Passes write to `out`, or to a new array where it
// is None, and return it.
template <class Core>
class Primitive {
public:
    const Core& core() const { return core_; }
    Core& core() { return core_; }
    const Forms& forms() const { return forms_; }

    // A new result is of float32 unless it is to be `narrow`.
    py::object backward_weights(py::handle src, py::handle diff_dst, py::handle out,
                                bool narrow) const {
        Call call;
        const char* const source = call.operand("src", src, src_);
        const char* const gradient = call.operand("diff_dst", diff_dst, dst_);
        const Form& form = narrow && out.is_none() ? forms_["narrow_diff_weights"]
                                                   : forms_.matching("diff_weights", out);
        const Written result = call.result("out", out, form, src);
        call.run([&] { core_.backward_weights(source, gradient, form.dtype(), result.data); });
        return result.array;
    }

protected:
    // The core comes first, for it refuses what has no forms.
    template <class Spec>
    Primitive(const Spec& spec, std::vector<TensorForm> (*table)(const Spec&))
        : core_(spec), forms_(table(spec)) {}

    // `maker` is what was made with or without a bias.
    const float* bias_in(Call& call, py::handle bias, const std::string& maker) const {
        if (core_.spec().bias == bias.is_none()) {
            throw py::value_error(core_.spec().bias
                                      ? "bias is missing: the " + maker + " was made with bias=True"
                                      : "bias was given, but the " + maker +
                                            " was made without bias=True");
        }
        return call.optional_floats("bias", bias, bias_);
    }

    Core core_;
    Forms forms_;
    // Looked up once.
    const Form& src_ = forms_["src"];
    const Form& dst_ = forms_["dst"];
    const Form& weights_ = forms_["weights"];
    const Form& bias_ = forms_["bias"];
};

template <class Bound, class Passes>
py::dict scratch_by_pass(const Bound& it, const Passes& passes) {
    py::dict bytes;
    for (const auto pass : passes) bytes[text_of(name_of(pass))] = it.core().scratch_bytes(pass);
    return bytes;
}

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
template <class Bound, class Passes, class Scheduled>
void define_schedules(py::class_<Bound>& type, const Passes& all, Scheduled scheduled) {
    type.def("set_schedule",
             [all](Bound& it, const std::string& which, const std::string& text) {
                 it.core().set_schedule(parse_pass(all, which), parse_schedule(text));
             })
        .def("candidates",
             [all](const Bound& it, const std::string& which, int count) {
                 py::list texts;
                 for (const Schedule& each : it.core().candidates(parse_pass(all, which), count)) {
                     texts.append(to_string(each));
                 }
                 return texts;
             })
        .def("loops",
             [all](const Bound& it, const std::string& which) {
                 py::dict extents;
                 for (const Loop& loop : it.core().loops(parse_pass(all, which))) {
                     extents[py::str(std::string(1, loop.letter))] = loop.extent;
                 }
                 return extents;
             })
        .def("describe", [](const Bound& it) { return it.core().describe(); })
        .def_property_readonly("schedules", [scheduled](const Bound& it) {
            py::dict texts;
            for (const auto pass : scheduled(it.core())) {
                texts[text_of(name_of(pass))] = to_string(it.core().schedule(pass));
            }
            return texts;
        });
}

// `shapes` and `plain_shapes` by the names of operands; between them `pack` and `unpack`, and new
// packed arrays.
template <class Bound>
void define_forms(py::class_<Bound>& type) {
    type.def_property_readonly("shapes", [](const Bound& it) { return it.forms().shapes(); })
        .def_property_readonly("plain_shapes",
                               [](const Bound& it) { return it.forms().plain_shapes(); })
        .def("pack",
             [](const Bound& it, const std::string& form, const std::string& name, py::handle plain,
                py::handle out) { return pack(it.forms()[form], name.c_str(), plain, out); })
        .def("unpack",
             [](const Bound& it, const std::string& form, py::handle packed, py::handle out) {
                 return unpack(it.forms().matching(form, packed), form.c_str(), packed, out);
             })
        .def("new", [](const Bound& it, const std::string& form, py::handle like) {
            const Form& of = it.forms()[form];
            return new_array(of.packed(), dtype_for(of.dtype(), like));
        });
}

}  // namespace dlprim::bindings
