#include "bindings/arrays/call.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dlprim::bindings {
namespace {

void require_form(const char* name, py::handle array, const py::object& expected) {
    const py::object given = packed_as(array);
    if (!given || (expected && (given.is(expected) || given.equal(expected)))) return;
    throw py::value_error(std::string(name) + " is packed as " + std::string(py::str(given)) +
                          ", expected " +
                          (expected ? std::string(py::str(expected)) : "an array not packed"));
}

}  // namespace

Call::Taken& Call::take(const char* name, py::handle array, const Expected& expected, bool dense) {
    if (count_ == kMost) throw std::logic_error("a call has more arrays than it can");
    Taken& made = *new (memory_ + count_ * sizeof(Taken))
                      Taken{ArrayView(name, array, expected.dtype, !dense)};
    ++count_;
    if (!has_shape(made.view.array(), expected.shape) || (dense && !made.view.is_c_contiguous())) {
        throw py::value_error(made.view.description() + ", expected " +
                              (dense ? "a C-contiguous array of shape " : "shape ") +
                              std::string(py::str(tuple_of(expected.shape))));
    }
    return made;
}

Memory Call::operand(const char* name, py::handle array, const Expected& expected) {
    const ArrayView& view = take(name, array, expected).view;
    if (expected.packed_as != nullptr) require_form(name, array, *expected.packed_as);
    return {view.data()};
}

Plain Call::plain(const char* name, py::handle array, const Expected& expected) {
    const ArrayView& view = take(name, array, expected, false).view;
    Plain made{{view.data()}, expected.dtype, {}};
    const bool is_dense = view.is_c_contiguous();  // NumPy gives axes without elements any strides
    std::int64_t dense = 1;
    for (int axis = view.ndim(); axis-- > 0; dense *= view.shape(axis)) {
        if (!is_dense && view.shape(axis) > 1 && view.stride(axis) <= 0) {
            throw py::value_error(view.description() + ", expected strides above 0");
        }
        const std::int64_t stride = view.stride(axis) / size_of(expected.dtype);
        made.strides.insert(made.strides.begin(), is_dense ? dense : stride);
    }
    return made;
}

Written Call::result(const char* name, py::handle out, const Expected& expected, py::handle like,
                     std::initializer_list<const void*> replaced) {
    if (out.is_none()) {
        const py::dtype dtype = dtype_for(expected.dtype, like);
        py::object made = new_array(expected, dtype, pool_);
        return {made, {take(name, made, expected).view.data()}};
    }
    Taken& made = take(name, out, expected);
    made.is_result = true;
    made.becomes = expected.packed_as;
    made.view.require_writeable();
    for (std::size_t i = 0; i + 1 < count_; ++i) {
        const ArrayView& other = taken(i).view;
        const bool may_be =
            !taken(i).is_result && other.data() == made.view.data() &&
            std::find(replaced.begin(), replaced.end(), other.data()) != replaced.end();
        if (!may_be) made.view.require_apart(other);
    }
    return {py::reinterpret_borrow<py::object>(out), {made.view.data()}};
}

void Call::say_forms() {
    for (std::size_t i = 0; i < count_; ++i) {
        if (taken(i).becomes != nullptr) set_packed_as(taken(i).view.array(), *taken(i).becomes);
    }
}

py::object NamedCall::at(const char* name) const {
    PyObject* const found = PyDict_GetItemString(arrays_.ptr(), name);
    return found == nullptr ? py::none() : py::reinterpret_borrow<py::object>(found);
}

Memory NamedCall::required(const char* name, const char* called) {
    if (called == nullptr) called = name;
    const Memory found = optional(name, called);
    if (!found) throw py::value_error(std::string(called) + " is missing, expected an array");
    return found;
}

Memory NamedCall::result(const char* name, const char* called) {
    if (called == nullptr) called = name;
    const Written made = call_.result(called, at(name), forms_[name].written_whole());
    results_[name] = made.array;
    return made.data;
}

DType plain_type_of(const Form& form, py::handle array) {
    const bool is_master = form.dtype() == DType::bf16 && form.name().ends_with("weights") &&
                           py::isinstance<py::array_t<float>>(array);
    return is_master ? DType::f32 : form.dtype();
}

py::object pack(const Form& form, const char* name, py::handle plain, py::handle out) {
    const int dense = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
    const bool lies_apart = py::isinstance<py::array>(plain) &&
                            (py::reinterpret_borrow<py::array>(plain).flags() & dense) != dense;
    if (form.is_plain() && out.is_none() && !lies_apart) {
        Call().operand(name, plain, form.plain());
        return py::reinterpret_borrow<py::object>(plain);
    }
    return pack_then(form, form, name, plain, out, [](const Plain&) { return [](Memory) {}; });
}

py::object unpack(const Form& form, const char* name, py::handle packed, py::handle out) {
    Call call;
    const Memory src = call.operand(name, packed, form);
    const Written plain = call.result("out", out, form.plain(), packed);
    const Reorder& unpacking = form.unpacking();
    call.run([&] { unpacking.run(src, plain.data); });
    return plain.array;
}

}  // namespace dlprim::bindings
