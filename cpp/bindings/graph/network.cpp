#include "bindings/graph/network.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include <pybind11/stl.h>

#include "bindings/arrays/array.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

std::string text_of(py::handle object) { return py::str(object); }

py::dtype plain_dtype(const py::object& object) {
    // A network has hundreds of values of one or two types; those that are known stay alive.
    constexpr std::size_t kKnown = 32;
    static std::vector<PyObject*> known;  // guarded by the GIL
    if (std::find(known.begin(), known.end(), object.ptr()) != known.end()) {
        return py::reinterpret_borrow<py::dtype>(object);
    }
    py::dtype dtype = py::dtype::from_args(object);
    const bool is_plain = !dtype.attr("hasobject").cast<bool>() &&
                          dtype.attr("isnative").cast<bool>() && dtype.attr("names").is_none();
    if (!is_plain || dtype.itemsize() == 0) {
        throw py::type_error("a value is of dtype " + text_of(dtype) +
                             ", expected numbers in native byte order");
    }
    if (known.size() < kKnown && dtype.is(object)) known.push_back(dtype.inc_ref().ptr());
    return dtype;
}

NetworkTensor tensor_of(const Shape& shape, const py::dtype& dtype) {
    return dense_tensor(numpy_name(dtype), dtype.itemsize(), shape);
}

bool is_as(const py::array& array, const NetworkTensor& tensor, const py::dtype& dtype) {
    const auto* const given = py::detail::array_proxy(array.ptr())->descr;
    return (given == dtype.ptr() || array.dtype().equal(dtype)) && has_shape(array, tensor.shape);
}

bool is_ready(const py::array& array) {
    const int needed = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
    return (array.flags() & needed) == needed;
}

// Of NumPy's own class, so that nothing has to be asked or copied.
bool is_just_as(py::handle object, const NetworkTensor& tensor, const py::dtype& dtype) {
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto array = py::reinterpret_borrow<py::array>(object);
    return is_as(array, tensor, dtype) && is_ready(array);
}

std::string look_of(const py::array& array) {
    return text_of(array.dtype()) + " " + text_of(array.attr("shape"));
}

// An ndarray, or a sentence that begins with `name`.
py::array as_ndarray(const std::string& name, py::handle object, const NetworkTensor& expected) {
    if (!py::isinstance<py::array>(object) || is_masked(object)) {
        throw py::type_error(name + " is of type " +
                             text_of(py::type::handle_of(object).attr("__name__")) +
                             ", expected a NumPy array of " + expected.described());
    }
    return py::reinterpret_borrow<py::array>(object);
}

void require_look(const std::string& name, const py::array& array, const NetworkTensor& tensor,
                  const py::dtype& dtype) {
    if (is_as(array, tensor, dtype)) return;
    const std::string sentence =
        name + " is " + look_of(array) + ", expected " + tensor.described();
    if (!array.dtype().equal(dtype)) throw py::type_error(sentence);
    throw py::value_error(sentence);
}

}  // namespace

int PyNetwork::known(int value, const py::dtype& dtype) {
    looks_.push_back({dtype});
    return value;
}

int PyNetwork::named_input(int value, const py::dtype& dtype, const std::string& name) {
    inputs_.push_back(known(value, dtype));
    names_.push_back("input " + (name.empty() ? std::to_string(names_.size()) : name));
    states_.add_input(core_.tensor(value).bytes());
    return value;
}

int PyNetwork::input(const Shape& shape, const py::object& dtype, const std::string& name) {
    const py::dtype type = plain_dtype(dtype);
    return named_input(core_.input(tensor_of(shape, type)), type, name);
}

int PyNetwork::state(const Shape& shape, const py::object& dtype, const std::string& name) {
    const py::dtype type = plain_dtype(dtype);
    return named_input(core_.state(tensor_of(shape, type)), type, name);
}

int PyNetwork::next_of(int state) {
    const int value = known(core_.next_of(state), dtype(state));
    const auto found = std::find(inputs_.begin(), inputs_.end(), state);
    states_.make_state(static_cast<std::size_t>(found - inputs_.begin()));
    return value;
}

int PyNetwork::constant(const py::array& array) {
    const py::dtype type = plain_dtype(array.dtype());
    NetworkTensor tensor = tensor_of({array.shape(), array.shape() + array.ndim()}, type);
    tensor.strides.assign(array.strides(), array.strides() + array.ndim());
    if ((array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) == 0) {
        throw py::value_error(
            "a constant is an array whose elements are not aligned, expected "
            "an aligned one");
    }
    const int value = known(core_.constant(std::move(tensor), array.data()), type);
    looks_.back().packed_as = bindings::packed_as(array);
    constants_.push_back(array);
    const auto [low, high] = core_.tensor(value).extent();
    const auto* const first = static_cast<const char*>(array.data());
    fixed_.push_back({first + low, first + high});
    return value;
}

int PyNetwork::temporary(const Shape& shape, const py::object& dtype) {
    const py::dtype type = plain_dtype(dtype);
    return known(core_.temporary(tensor_of(shape, type)), type);
}

int PyNetwork::view(int of, const Shape& shape, const py::object& dtype, const py::object& strides,
                    std::int64_t offset) {
    const py::dtype type = plain_dtype(dtype);
    NetworkTensor tensor = tensor_of(shape, type);
    if (!strides.is_none()) {
        tensor.strides = strides.cast<Shape>();
        if (tensor.strides.size() != shape.size()) {
            throw py::value_error("strides has " + std::to_string(tensor.strides.size()) +
                                  " elements, expected one for each of the " +
                                  std::to_string(shape.size()) + " axes");
        }
    }
    return known(core_.view(of, std::move(tensor), offset), type);
}

void PyNetwork::finish(const std::vector<int>& results) {
    core_.finish(results);
    results_ = results;
}

const void* PyNetwork::take_input(std::size_t number, const py::object& array, Taken& taken) const {
    const int value = inputs_[number];
    const NetworkTensor& tensor = core_.tensor(value);
    const py::array given = as_ndarray(names_[number], array, tensor);
    require_look(names_[number], given, tensor, dtype(value));
    if (states_.is_state(number) && !(given.writeable() && is_ready(given))) {
        throw py::value_error(names_[number] + " is a state that the run changes, but " +
                              (given.writeable() ? "not C-contiguous and aligned" : "read-only") +
                              ", expected a writeable C-contiguous array");
    }
    // NumPy's copy is aligned and in C order whatever the strides.
    const py::array held = is_ready(given) ? given : py::array(given.attr("copy")("C"));
    taken.held.push_back(held);
    return held.data();
}

void PyNetwork::require_states_apart(const std::vector<const void*>& inputs) const {
    const auto shared = states_.shared(inputs, fixed_);
    if (!shared) return;
    const auto [one, other] = *shared;
    const bool is_constant = other == StateArrays::kConstant;
    throw py::value_error(names_[one] + " and " + (is_constant ? "a constant" : names_[other]) +
                          " share memory, and a run changes a state there: expected arrays apart");
}

void* PyNetwork::take_result(std::size_t number, const py::object& array,
                             const Taken& taken) const {
    const std::string name = "out[" + std::to_string(number) + "]";
    const NetworkTensor& tensor = core_.tensor(results_[number]);
    py::array given = as_ndarray(name, array, tensor);
    require_look(name, given, tensor, dtype(results_[number]));
    if (!given.writeable() || !is_ready(given)) {
        throw py::value_error(name + " is " +
                              (given.writeable() ? "not C-contiguous and aligned" : "read-only") +
                              ", expected a writeable C-contiguous array");
    }
    void* const data = given.mutable_data();
    const auto require_apart = [&](const void* other, std::int64_t bytes, const std::string& of) {
        const ByteRange own = ByteRange::of(data, given.nbytes());
        if (!own.shares_bytes_with(ByteRange::of(other, bytes))) return;
        throw py::value_error(name + " shares memory with " + of + ", expected memory of its own");
    };
    for (std::size_t i = 0; i < taken.inputs.size(); ++i) {
        require_apart(taken.inputs[i], core_.tensor(inputs_[i]).bytes(), names_[i]);
    }
    for (std::size_t i = 0; i < taken.results.size(); ++i) {
        require_apart(taken.results[i], core_.tensor(results_[i]).bytes(),
                      "out[" + std::to_string(i) + "]");
    }
    for (const ByteRange& it : fixed_) require_apart(it.begin, it.end - it.begin, "a constant");
    return data;
}

PyNetwork::Taken PyNetwork::take(const py::sequence& arrays, const py::object& out) const {
    if (!core_.is_finished()) throw py::value_error("the network is not finished");
    if (arrays.size() != inputs_.size()) {
        throw py::type_error(std::to_string(arrays.size()) + " arrays were given, expected " +
                             std::to_string(inputs_.size()));
    }
    Taken taken;
    taken.inputs.reserve(inputs_.size());
    taken.results.reserve(results_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        taken.inputs.push_back(take_input(i, py::object(arrays[i]), taken));
    }
    require_states_apart(taken.inputs);
    const auto given = out.is_none() ? py::tuple() : py::tuple(out);
    if (!out.is_none() && given.size() != results_.size()) {
        throw py::type_error("out has " + std::to_string(given.size()) + " arrays, expected " +
                             std::to_string(results_.size()));
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
        const int value = results_[i];
        if (!out.is_none() && !given[i].is_none()) {
            taken.results.push_back(take_result(i, given[i], taken));
            taken.made.push_back(py::object(given[i]));
            continue;
        }
        const py::object made = new_array({.shape = core_.tensor(value).shape}, dtype(value));
        taken.results.push_back(py::reinterpret_borrow<py::array>(made).mutable_data());
        taken.made.push_back(made);
    }
    return taken;
}

bool PyNetwork::take_exact(const std::vector<py::handle>& arrays, Taken& taken) const {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (!is_just_as(arrays[i], core_.tensor(inputs_[i]), dtype(inputs_[i]))) return false;
        taken.inputs.push_back(py::detail::array_proxy(arrays[i].ptr())->data);
    }
    return true;
}

py::object PyNetwork::new_result(std::size_t number, Taken& taken) const {
    const int value = results_[number];
    py::object made = new_array({.shape = core_.tensor(value).shape}, dtype(value));
    taken.results.push_back(py::detail::array_proxy(made.ptr())->data);
    return made;
}

bool PyNetwork::run_exact(const std::vector<py::handle>& arrays,
                          std::vector<py::object>& results) const {
    if (!core_.is_finished() || arrays.size() != inputs_.size()) return false;
    Taken taken;
    taken.inputs.reserve(inputs_.size());
    if (!take_exact(arrays, taken)) return false;
    for (const std::size_t i : states_.states()) {
        if (!py::reinterpret_borrow<py::array>(arrays[i]).writeable()) return false;
    }
    if (states_.shared(taken.inputs, fixed_)) return false;
    taken.results.reserve(results_.size());
    results.clear();
    results.reserve(results_.size());
    for (std::size_t i = 0; i < results_.size(); ++i) results.push_back(new_result(i, taken));
    const WithoutGil without_gil;
    core_.run({taken.inputs, taken.results});
    return true;
}

py::object PyNetwork::run_if_exact(const py::tuple& arrays) const {
    std::vector<py::object> results;
    if (!run_exact({arrays.begin(), arrays.end()}, results)) return py::none();
    if (results.size() == 1) return results[0];
    py::tuple made(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) made[i] = std::move(results[i]);
    return made;
}

bool PyNetwork::takes(std::size_t number, const py::object& array) const {
    return is_just_as(array, core_.tensor(inputs_.at(number)), dtype(inputs_.at(number)));
}

py::list PyNetwork::profile(const py::sequence& arrays) const {
    const Taken taken = take(arrays, py::none());
    std::vector<Network::StepTime> times;
    {
        const WithoutGil without_gil;
        times = core_.profile({taken.inputs, taken.results});
    }
    py::list made;
    for (const Network::StepTime& it : times) {
        made.append(py::make_tuple(it.label, it.seconds, it.kind));
    }
    return made;
}

py::object PyNetwork::priced(int threads) const {
    py::list inputs;
    for (const int value : inputs_) {
        py::object made = new_array({.shape = core_.tensor(value).shape}, dtype(value));
        auto array = py::reinterpret_borrow<py::array>(made);
        std::memset(array.mutable_data(), 0, static_cast<std::size_t>(array.nbytes()));
        inputs.append(std::move(made));
    }
    const Taken taken = take(inputs, py::none());
    const Network::Prices prices = core_.priced({taken.inputs, taken.results}, threads);
    py::list steps;
    for (const Network::Price& it : prices.steps) {
        steps.append(py::make_tuple(it.kind, it.label, it.alone, it.shared, it.loops, it.tasks));
    }
    return py::make_tuple(prices.alone, prices.shared, steps);
}

void register_network(py::module_& module) {
    py::class_<PyNetwork>(module, "Network")
        .def(py::init<>())
        .def("input", &PyNetwork::input, py::arg("shape"), py::arg("dtype"), py::arg("name") = "")
        .def("state", &PyNetwork::state, py::arg("shape"), py::arg("dtype"), py::arg("name") = "")
        .def("next_of", &PyNetwork::next_of, py::arg("state"))
        .def("constant", &PyNetwork::constant, py::arg("array"))
        .def("temporary", &PyNetwork::temporary, py::arg("shape"), py::arg("dtype"))
        .def("view", &PyNetwork::view, py::arg("of"), py::arg("shape"), py::arg("dtype"),
             py::arg("strides") = py::none(), py::arg("offset") = 0)
        .def("finish", &PyNetwork::finish, py::arg("results"))
        .def("run_if_exact", &PyNetwork::run_if_exact, py::arg("arrays"))
        .def("profile", &PyNetwork::profile, py::arg("arrays"))
        .def("priced", &PyNetwork::priced, py::arg("threads"))
        .def("describe", [](const PyNetwork& it) { return it.core().described(); })
        .def_property_readonly("runs_alone",
                               [](const PyNetwork& it) { return it.core().runs_alone(); })
        .def_property_readonly("peak_bytes",
                               [](const PyNetwork& it) { return it.core().planned_bytes(); })
        .def_property_readonly("live_bytes",
                               [](const PyNetwork& it) { return it.core().live_bytes(); });
}

}  // namespace dlprim::bindings
