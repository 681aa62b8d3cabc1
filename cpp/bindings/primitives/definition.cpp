// Formulas: a text is parsed once, compiled for the shapes, strides and types of its arrays, and
// then called on arrays that have exactly those.
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/array.h"
#include "bindings/arrays/call.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "lang/check.h"
#include "lang/gradients/gradient.h"
#include "primitives/formulas/compiled_definition.h"
#include "primitives/products/product_pass.h"

namespace dlprim::bindings {
namespace {

using Arrays = std::vector<py::array>;

// How often the algorithm of convolutions was chosen anew: a formula is asked for with the number
// that there was before its algorithm was. Guarded by the GIL.
std::int64_t algorithm_changes = 0;

// Types that are equal are not always one object: those of unpickled arrays are not.
template <typename T>
bool has_type(const py::array& array) {
    const py::dtype type = py::dtype::of<T>();
    return array.dtype().is(type) || array.dtype().equal(type);
}

// Integers that are places are int32, or int64 as pairs of these.
bool is_wide_integer(const py::array& array) {
    return array.itemsize() == size_of(DType::s32) * 2 && has_type<std::int64_t>(array);
}

DType element_type(const std::string& name, const py::array& array, bool halves) {
    if (is_bfloat16_array(array)) return DType::bf16;
    if (halves && array.dtype().equal(py::dtype("float16"))) return DType::f16;
    if (has_type<float>(array)) return DType::f32;
    if (has_type<std::int32_t>(array) || is_wide_integer(array)) return DType::s32;
    if (has_type<std::int8_t>(array)) return DType::s8;
    if (has_type<std::uint8_t>(array)) return DType::u8;
    throw py::type_error(name + " has dtype " + std::string(py::str(array.dtype())) +
                         ", expected float32, bfloat16, int8, uint8, int32 or int64");
}

TensorView view_of(const std::string& name, const py::array& array, DType dtype) {
    TensorView made{.name = name, .dtype = dtype};
    made.is_wide = is_wide_integer(array);
    for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
        made.shape.push_back(array.shape(axis));
        made.strides.push_back(array.strides(axis) / size_of(dtype));
    }
    return made;
}

// Along an axis of one element nothing moves, and NumPy gives it any stride.
bool lie_alike(const TensorView& one, const TensorView& other) {
    if (one.shape != other.shape) return false;
    for (std::size_t axis = 0; axis < one.shape.size(); ++axis) {
        if (one.shape[axis] > 1 && one.strides[axis] != other.strides[axis]) return false;
    }
    return true;
}

std::int64_t element_bytes(const TensorView& view) {
    return size_of(view.dtype) * (view.is_wide ? 2 : 1);
}

class Formula {
public:
    Formula(const Definition& definition, const Arrays& parameters, const Shapes& results,
            const Constants& given, const std::string& type, const Choices& choices,
            std::int64_t made_at, bool halves)
        : made_at_(made_at),
          views_(views_of(definition, parameters, halves)),
          compiled_(without_gil([&] {  // of thousands of statements it takes seconds
              CompiledDefinition::Arrays all{.parameters = views_, .results = results};
              all.given = given;
              all.choices = choices;
              all.result_type = halves && type == "float16" ? DType::f16 : parse_dtype(type);
              return CompiledDefinition(definition, all);
          })) {
        for (const py::array& array : parameters) {
            dtypes_.push_back(array.dtype());
            if (is_bfloat16_array(array)) halves_ = array.dtype();
        }
        for (std::size_t i = 0; i < compiled_.results().size(); ++i)
            reads_results_ |= compiled_.is_in_out(i);
    }

    void run(const Arrays& parameters, const Arrays& results) const {
        std::vector<const void*> operands;
        std::vector<void*> written;
        require_count(parameters.size(), views_.size());
        require_count(results.size(), compiled_.results().size());
        for (std::size_t i = 0; i < views_.size(); ++i) {
            require(parameters[i], views_[i]);
            operands.push_back(parameters[i].data());
        }
        for (std::size_t i = 0; i < results.size(); ++i) {
            require(results[i], compiled_.results()[i]);
            written.push_back(const_cast<void*>(results[i].data()));
            if (!results[i].writeable()) {
                throw py::value_error("the result is read-only, expected a writeable array");
            }
        }
        run_without_gil(compiled_.flops(), [&] { compiled_.run(operands, written); });
    }

    // New results, a tuple where there are several, or `out` where there is one, for ndarrays just
    // like those that this was made for; None for anything else.
    py::object call(const py::tuple& arrays, const py::object& out) const {
        if (arrays.size() != views_.size() || reads_results_) return py::none();
        std::vector<const void*> operands(views_.size());
        for (std::size_t i = 0; i < views_.size(); ++i) {
            const PyObject* const object = PyTuple_GET_ITEM(arrays.ptr(), i);
            if (!is_like(object, i)) return py::none();
            operands[i] = py::detail::array_proxy(object)->data;
        }
        if (!out.is_none() && !takes_result(out.ptr(), operands)) return py::none();
        const std::size_t count = compiled_.results().size();
        std::vector<void*> written(count);
        std::vector<py::object> made(count);
        for (std::size_t i = 0; i < count; ++i) {
            const TensorView& it = compiled_.results()[i];
            made[i] = out.is_none() ? new_array({it.dtype, it.shape}, dtype_of(it.dtype)) : out;
            written[i] = py::detail::array_proxy(made[i].ptr())->data;
        }
        run_without_gil(compiled_.flops(), [&] { compiled_.run(operands, written); });
        if (count == 1) return std::move(made.front());
        return py::tuple(py::cast(made));
    }

    // The same, and None where it was made for another algorithm of convolutions than is set now.
    py::object call_if_current(const py::tuple& arrays, const py::object& out) const {
        return made_at_ == algorithm_changes ? call(arrays, out) : py::none();
    }

    // run() as a step of a network, on values that lie like the arrays this was made for. The
    // caller knows of those that the step says it replaces that results may lie there.
    void add_to(PyNetwork& network, NetworkStep step) const {
        const std::vector<int> parameters = step.reads, results = step.writes;
        require_count(parameters.size(), views_.size());
        require_count(results.size(), compiled_.results().size());
        step.flops = compiled_.flops();
        for (std::size_t i = 0; i < views_.size(); ++i) {
            require(network.core().tensor(parameters[i]), views_[i]);
        }
        for (std::size_t i = 0; i < results.size(); ++i) {
            require(network.core().tensor(results[i]), compiled_.results()[i]);
            if (!compiled_.is_in_out(i)) continue;
            step.reads.push_back(results[i]);
            step.replaced.push_back(results[i]);
        }
        step.run = [this, parameters, results](const Addresses& at) {
            std::vector<const void*> operands;
            std::vector<void*> written;
            for (const int it : parameters) operands.push_back(at[it]);
            for (const int it : results) written.push_back(at[it]);
            compiled_.run(operands, written);
        };
        network.add(std::move(step));
    }

    // Name, dtype, shape, and whether it is read: of every result.
    std::vector<py::tuple> results() const {
        std::vector<py::tuple> made;
        for (std::size_t i = 0; i < compiled_.results().size(); ++i) {
            const TensorView& it = compiled_.results()[i];
            made.push_back(py::make_tuple(it.name, std::string(name_of(it.dtype)),
                                          py::tuple(py::cast(it.shape)), compiled_.is_in_out(i)));
        }
        return made;
    }

    std::string described(bool all, const std::optional<std::string>& instruction) const {
        return compiled_.described({all, instruction});
    }
    double flops() const { return compiled_.flops(); }
    std::int64_t scratch_bytes() const { return compiled_.scratch_bytes(); }

    // Name, choice, options, and the extents of loops whose order it is: of every decision.
    std::vector<py::tuple> decisions(int orders) const {
        std::vector<py::tuple> all;
        for (const Decision& it : compiled_.decisions().made(orders)) {
            py::dict loops;
            if (it.product) {
                for (const Loop& loop : it.product->nest().loops())
                    loops[py::str(std::string(1, loop.letter))] = loop.extent;
            }
            all.push_back(py::make_tuple(it.name, it.chosen, it.options, loops));
        }
        return all;
    }

private:
    const py::dtype& dtype_of(DType dtype) const {
        if (dtype == DType::s32) return integers_;
        return dtype == DType::bf16 ? halves_ : floats_;
    }

    bool is_like(const PyObject* object, std::size_t operand) const {
        if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(ndarray_.ptr())) return false;
        const TensorView& view = views_[operand];
        const auto* const array = py::detail::array_proxy(object);
        const int aligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
        if (array->descr != dtypes_[operand].ptr() || (array->flags & aligned) == 0 ||
            static_cast<std::size_t>(array->nd) != view.shape.size()) {
            return false;
        }
        for (int axis = 0; axis < array->nd; ++axis) {
            const auto i = static_cast<std::size_t>(axis);
            if (array->dimensions[axis] != view.shape[i]) return false;
            if (view.shape[i] > 1 &&
                array->strides[axis] != view.strides[i] * size_of(view.dtype)) {
                return false;
            }
        }
        return true;
    }

    // Whether it is an array of the one result's type and shape, apart from all operands.
    bool takes_result(const PyObject* object, std::span<const void* const> operands) const {
        const bool is_array = Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(ndarray_.ptr());
        if (!is_array || compiled_.results().size() != 1) return false;
        using Flags = py::detail::npy_api;
        constexpr int wanted = Flags::NPY_ARRAY_C_CONTIGUOUS_ | Flags::NPY_ARRAY_ALIGNED_ |
                               Flags::NPY_ARRAY_WRITEABLE_;
        const TensorView& view = compiled_.results().front();
        const auto* const array = py::detail::array_proxy(object);
        const std::vector<std::int64_t> shape(array->dimensions, array->dimensions + array->nd);
        if (array->descr != dtype_of(view.dtype).ptr() || (array->flags & wanted) != wanted ||
            shape != view.shape) {
            return false;
        }
        const char* const begin = array->data;
        const char* const end = begin + view.elements() * size_of(view.dtype);
        for (std::size_t i = 0; i < operands.size(); ++i) {
            std::int64_t bytes = element_bytes(views_[i]);
            for (std::size_t axis = 0; axis < views_[i].shape.size(); ++axis) {
                bytes += (views_[i].shape[axis] - 1) * views_[i].strides[axis] *
                         size_of(views_[i].dtype);
            }
            const auto* const operand = static_cast<const char*>(operands[i]);
            if (operand < end && begin < operand + bytes) return false;
        }
        return true;
    }

    static std::vector<TensorView> views_of(const Definition& it, const Arrays& arrays,
                                            bool halves) {
        require_count(arrays.size(), it.parameters.size());
        std::vector<TensorView> views;
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            const std::string& name = it.parameters[i].name;
            views.push_back(view_of(name, arrays[i], element_type(name, arrays[i], halves)));
        }
        return views;
    }

    static void require_count(std::size_t given, std::size_t expected) {
        if (given == expected) return;
        throw py::type_error(std::to_string(given) + " arrays were given, expected " +
                             std::to_string(expected));
    }

    static void require(const py::array& array, const TensorView& expected) {
        const int aligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
        const TensorView given = view_of(expected.name, array, expected.dtype);
        const bool fits = array.itemsize() == element_bytes(expected) &&
                          lie_alike(given, expected) && (array.flags() & aligned) != 0;
        if (fits || (given.shape == expected.shape && array.size() == 0)) return;
        throw py::value_error(expected.name + " is " + to_string(given, array.itemsize()) +
                              ", expected " + to_string(expected, element_bytes(expected)) +
                              " that the formula was compiled for");
    }

    static void require(const NetworkTensor& value, const TensorView& expected) {
        TensorView given{.dtype = expected.dtype, .shape = value.shape};
        for (const std::int64_t it : value.strides)
            given.strides.push_back(it / size_of(expected.dtype));
        const std::string type = expected.is_wide ? "int64" : std::string(name_of(expected.dtype));
        const bool has_type =
            value.dtype == type || (type == "bfloat16" && value.dtype == "uint16");
        const bool is_empty = given.shape == expected.shape && value.elements() == 0;
        if (has_type && (is_empty || lie_alike(given, expected))) return;
        throw py::value_error(expected.name + " is " + value.described() + ", " +
                              to_string(given, value.element) + ", expected " +
                              to_string(expected, element_bytes(expected)) + " of " + type +
                              " that the formula was compiled for");
    }

    // "an array of shape (2, 3), strides (3, 1) and 4 bytes an element"
    static std::string to_string(const TensorView& view, py::ssize_t bytes) {
        const auto tuple = [](const std::vector<std::int64_t>& numbers) {
            return std::string(py::str(py::tuple(py::cast(numbers))));
        };
        std::vector<std::int64_t> strides = view.strides;
        for (std::int64_t& it : strides) it /= view.is_wide ? 2 : 1;
        return "an array of shape " + tuple(view.shape) + ", strides " + tuple(strides) + " and " +
               std::to_string(bytes) + " bytes an element";
    }

    std::int64_t made_at_;
    std::vector<TensorView> views_;
    CompiledDefinition compiled_;
    bool reads_results_ = false;
    std::vector<py::dtype> dtypes_ = {};  // of the parameters
    py::object ndarray_ = py::module_::import("numpy").attr("ndarray");
    py::dtype floats_ = py::dtype::of<float>();
    py::dtype halves_ = floats_;
    py::dtype integers_ = py::dtype::of<std::int32_t>();
};

}  // namespace

void register_definition(py::module_& module) {
    py::class_<Definition>(module, "Definition")
        .def(py::init(&checked_contraction), py::arg("formula"))
        .def_readonly("name", &Definition::name)
        .def_property_readonly("parameters",
                               [](const Definition& it) {
                                   std::vector<std::string> names;
                                   for (const Parameter& parameter : it.parameters) {
                                       names.push_back(parameter.name);
                                   }
                                   return names;
                               })
        .def_property_readonly("types",
                               [](const Definition& it) {
                                   std::vector<std::string> types;
                                   for (const Parameter& parameter : it.parameters) {
                                       types.push_back(parameter.type);
                                   }
                                   return types;
                               })
        .def_readonly("returns", &Definition::returns)
        .def_readonly("text", &Definition::text)
        .def("gradient", &gradient_of, py::arg("parameter"));
    module.def("parse_definitions", &checked_definitions, py::arg("text"));
    module.def("spelling_of", &spelling_of, py::arg("name"));
    py::class_<Formula>(module, "Formula")
        .def(py::init<const Definition&, const Arrays&, const Shapes&, const Constants&,
                      const std::string&, const Choices&, std::int64_t, bool>(),
             py::arg("definition"), py::arg("parameters"), py::arg("shapes"), py::arg("given"),
             py::arg("result_type"), py::arg("choices") = Choices(), py::arg("made_at") = 0,
             py::arg("takes_halves") = false)
        .def("call", &Formula::call, py::arg("arrays"), py::arg("out") = py::none())
        .def("call_if_current", &Formula::call_if_current, py::arg("arrays"), py::arg("out"))
        .def("run", &Formula::run, py::arg("parameters"), py::arg("results"))
        .def("results", &Formula::results)
        .def("described", &Formula::described, py::arg("all"), py::arg("instruction"))
        .def("decisions", &Formula::decisions, py::arg("orders"))
        .def_property_readonly("flops", &Formula::flops)
        .def_property_readonly("scratch_bytes", &Formula::scratch_bytes);
    module.def("algorithm_changed", [] { ++algorithm_changes; });
    module.def("algorithm_changes", [] { return algorithm_changes; });
    network_type(module).def(
        "formula",
        [](PyNetwork& network, const Formula& formula, const std::vector<int>& parameters,
           const std::vector<int>& results, const std::string& label,
           const std::vector<int>& replaced) {
            formula.add_to(network, {"formula", label, parameters, results, replaced});
        },
        py::keep_alive<1, 2>(), py::arg("formula"), py::arg("parameters"), py::arg("results"),
        py::arg("label") = "", py::arg("replaced") = std::vector<int>());
}

}  // namespace dlprim::bindings
