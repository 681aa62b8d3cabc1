#include "bindings/parts/program.h"

#include <tuple>

#include <pybind11/stl.h>

#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

bool has_texts(py::handle result) {
    if (py::isinstance<py::list>(result)) {
        for (const py::handle it : py::reinterpret_borrow<py::list>(result)) {
            if (has_texts(it)) return true;
        }
        return false;
    }
    return py::isinstance<py::array>(result) &&
           are_texts(py::reinterpret_borrow<py::array>(result).dtype());
}

// Makes results that share memory with nothing else: what only passes through, and what is seen of
// another array, is copied.
class Owned {
public:
    void see(py::handle given) {
        if (py::isinstance<py::list>(given)) {
            for (const py::handle it : py::reinterpret_borrow<py::list>(given)) see(it);
        }
        kept_.push_back(given);
    }

    py::object of(const py::object& result) {
        if (py::isinstance<py::list>(result)) {
            py::list made;
            for (const py::handle it : py::reinterpret_borrow<py::list>(result)) {
                made.append(of(py::reinterpret_borrow<py::object>(it)));
            }
            return made;
        }
        if (result.is_none()) return result;
        const auto array = py::reinterpret_borrow<py::array>(result);
        const bool is_seen = py::isinstance<py::array>(array.base());
        py::object own = is_seen || is_kept(result) ? py::object(array.attr("copy")()) : result;
        kept_.push_back(own);
        return own;
    }

private:
    bool is_kept(py::handle result) const {
        for (const py::handle it : kept_) {
            if (it.is(result)) return true;
        }
        return false;
    }

    std::vector<py::handle> kept_ = {};  // which their owners hold meanwhile
};

}  // namespace

PartProgram::PartProgram(PartBlock& block, std::vector<InputPort> inputs, bool in_words)
    : block_(block), inputs_(std::move(inputs)), in_words_(in_words) {
    for (const InputPort& it : inputs_) is_plain_ = is_plain_ && it.dtype.has_value();
}

bool PartProgram::takes(const InputPort& port, py::handle given) const {
    if (!is_plain_array(given)) return false;
    const auto* const array = py::detail::array_proxy(given.ptr());
    if (array->descr != port.dtype->ptr() &&
        !py::reinterpret_borrow<py::array>(given).dtype().equal(*port.dtype)) {
        return false;
    }
    if (!port.shape) return true;
    if (static_cast<int>(port.shape->size()) != array->nd) return false;
    for (int axis = 0; axis < array->nd; ++axis) {
        const std::int64_t extent = (*port.shape)[static_cast<std::size_t>(axis)];
        if (extent >= 0 && extent != array->dimensions[axis]) return false;
    }
    return true;
}

Objects PartProgram::results_of(const py::object& owner, const Objects& given,
                                const py::object& observer) const {
    if (observer.is_none() && block_.plan() && block_.plan()->is_network) {
        const std::shared_ptr<const BlockPlan> plan = block_.plan();
        Objects results;
        if (ran_known(plan->pieces[0], {given.begin(), given.end()}, results)) return results;
    }
    const auto run = std::make_shared<PartsRun>(owner, observer);
    run->plan_of(block_);
    for (std::size_t i = 0; i < inputs_.size(); ++i) run->set(inputs_[i].value, given[i]);
    Objects results = run->block(block_);
    if (block_.plan() && block_.plan()->is_network) return results;
    Owned owned;
    for (const py::object& it : given) owned.see(it);
    for (py::object& it : results) it = owned.of(it);
    return results;
}

bool PartProgram::are_told(const Objects& results) const {
    bool are = in_words_;
    for (const py::object& it : results) are = are || has_texts(it);
    return are;
}

py::object PartProgram::run_exact(const py::object& owner, const py::object& given) const {
    if (!is_plain_ || !PyDict_CheckExact(given.ptr())) return py::none();
    const auto named = py::reinterpret_borrow<py::dict>(given);
    Objects arrays;
    arrays.reserve(inputs_.size());
    std::size_t found = 0;
    for (const InputPort& port : inputs_) {
        PyObject* const it = PyDict_GetItemWithError(given.ptr(), port.name.ptr());
        if (it == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
        if (it == nullptr && port.otherwise.is_none()) return py::none();
        if (it != nullptr && !takes(port, it)) return py::none();
        found += it != nullptr ? 1 : 0;
        arrays.push_back(it == nullptr ? port.otherwise : py::reinterpret_borrow<py::object>(it));
    }
    if (found != named.size()) return py::none();
    const Objects results = results_of(owner, arrays, py::none());
    py::list made = list_of(results);
    return are_told(results) ? owner.attr("told")(made) : py::object(made);
}

py::object PartProgram::call_exact(const py::object& owner, const py::tuple& given) const {
    if (!is_plain_ || given.size() != inputs_.size()) return py::none();
    Objects arrays;
    arrays.reserve(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        arrays.push_back(given[i]);
        if (!takes(inputs_[i], arrays.back())) return py::none();
    }
    Objects results = results_of(owner, arrays, py::none());
    if (are_told(results)) results = objects_of(owner.attr("told")(list_of(results)));
    if (results.size() == 1) return results[0];
    return py::tuple(list_of(results));
}

py::list PartProgram::run(const py::object& owner, const py::dict& given,
                          const py::object& observer) const {
    Objects values;
    for (const InputPort& port : inputs_) values.push_back(given[port.name]);
    return list_of(results_of(owner, values, observer));
}

void register_part_programs(py::module_& module) {
    using Port =
        std::tuple<py::str, int, std::optional<py::dtype>, std::optional<Shape>, py::object>;
    py::class_<PartProgram>(module, "PartProgram")
        .def(py::init([](PartBlock& block, const std::vector<Port>& inputs, bool in_words) {
                 std::vector<InputPort> ports;
                 for (const auto& [name, value, dtype, shape, otherwise] : inputs) {
                     ports.push_back({name, value, dtype, shape, otherwise});
                 }
                 return PartProgram(block, std::move(ports), in_words);
             }),
             py::keep_alive<1, 2>(), py::arg("block"), py::arg("inputs"), py::arg("in_words"))
        .def("run_exact", &PartProgram::run_exact, py::arg("owner"), py::arg("given"))
        .def("call_exact", &PartProgram::call_exact, py::arg("owner"), py::arg("given"))
        .def("run", &PartProgram::run, py::arg("owner"), py::arg("given"), py::arg("observer"));
}

}  // namespace dlprim::bindings
