// Functions whose TypeErrors another function answers: what the caller called an argument, or that
// an array is none yet, is looked at only once a call has failed. In Python such a function is one
// more around each call; this one hands its arguments on as they came.
#include <cstddef>
#include <utility>

#include <pybind11/pybind11.h>
#include <structmember.h>

#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

namespace py = pybind11;

struct AnsweredFunction {
    PyObject base;
    PyObject* function;
    PyObject* answer;  // of (arguments, those by name): NotImplemented lets the error pass
    PyObject* attributes;
    PyObject* references;  // weak ones
    vectorcallfunc call;
};

AnsweredFunction* answered_of(PyObject* self) { return reinterpret_cast<AnsweredFunction*>(self); }

py::object answer_to(AnsweredFunction* self, PyObject* const* arguments, Py_ssize_t count,
                     PyObject* names) {
    py::tuple given(count);
    for (Py_ssize_t i = 0; i < count; ++i) {
        given[static_cast<std::size_t>(i)] = py::reinterpret_borrow<py::object>(arguments[i]);
    }
    py::dict named;
    if (names != nullptr) {
        for (const py::handle name : py::reinterpret_borrow<py::tuple>(names)) {
            named[name] = py::reinterpret_borrow<py::object>(arguments[count++]);
        }
    }
    return py::reinterpret_borrow<py::object>(self->answer)(given, named);
}

PyObject* call_answered(PyObject* object, PyObject* const* arguments, std::size_t flags,
                        PyObject* names) {
    AnsweredFunction* const self = answered_of(object);
    PyObject* const result = PyObject_Vectorcall(self->function, arguments, flags, names);
    if (result != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return result;
    py::error_already_set refusal;
    try {
        py::object found = answer_to(self, arguments, PyVectorcall_NARGS(flags), names);
        if (found.ptr() != Py_NotImplemented) return found.release().ptr();
        refusal.restore();
    } catch (py::error_already_set& other) {
        other.restore();
    }
    return nullptr;
}

// A method of the class that it stands in, as functions are.
PyObject* bound_answered(PyObject* self, PyObject* object, PyObject*) {
    if (object == nullptr || object == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, object);
}

PyObject* shown_answered(PyObject* self) { return PyObject_Repr(answered_of(self)->function); }

// Pickled by name, as functions are.
PyObject* reduced_answered(PyObject* self, PyObject*) {
    return PyObject_GetAttrString(self, "__qualname__");
}

int visit_parts(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(answered_of(self)->function);
    Py_VISIT(answered_of(self)->answer);
    Py_VISIT(answered_of(self)->attributes);
    return 0;
}

int clear_parts(PyObject* self) {
    Py_CLEAR(answered_of(self)->function);
    Py_CLEAR(answered_of(self)->answer);
    Py_CLEAR(answered_of(self)->attributes);
    return 0;
}

void end_answered(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (answered_of(self)->references != nullptr) PyObject_ClearWeakRefs(self);
    clear_parts(self);
    PyTypeObject* const type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

template <class Function>
void* type_slot(Function* function) {
    return reinterpret_cast<void*>(function);
}

PyTypeObject* new_answered_type() {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(AnsweredFunction, call), READONLY, nullptr},
        {"__dictoffset__", T_PYSSIZET, offsetof(AnsweredFunction, attributes), READONLY, nullptr},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(AnsweredFunction, references), READONLY,
         nullptr},
        {nullptr, 0, 0, 0, nullptr}};
    static PyMethodDef methods[] = {{"__reduce__", &reduced_answered, METH_NOARGS, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
    static PyGetSetDef attributes[] = {
        {"__dict__", &PyObject_GenericGetDict, &PyObject_GenericSetDict, nullptr, nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr}};
    PyType_Slot slots[] = {{Py_tp_call, type_slot(&PyVectorcall_Call)},
                           {Py_tp_descr_get, type_slot(&bound_answered)},
                           {Py_tp_repr, type_slot(&shown_answered)},
                           {Py_tp_traverse, type_slot(&visit_parts)},
                           {Py_tp_clear, type_slot(&clear_parts)},
                           {Py_tp_dealloc, type_slot(&end_answered)},
                           {Py_tp_members, members},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {0, nullptr}};
    PyType_Spec spec{"dlprim._core.AnsweredFunction", sizeof(AnsweredFunction), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                         Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     slots};
    PyObject* const made = PyType_FromSpec(&spec);
    if (made == nullptr) throw py::error_already_set();
    return reinterpret_cast<PyTypeObject*>(made);
}

py::object answered(const py::object& function, const py::object& answer) {
    static PyTypeObject* const type = new_answered_type();
    PyObject* const made = type->tp_alloc(type, 0);
    if (made == nullptr) throw py::error_already_set();
    answered_of(made)->function = py::object(function).release().ptr();
    answered_of(made)->answer = py::object(answer).release().ptr();
    answered_of(made)->call = &call_answered;
    return py::reinterpret_steal<py::object>(made);
}

}  // namespace

void register_answered_functions(py::module_& module) {
    module.def("answered", &answered, py::arg("function"), py::arg("answer"));
}

}  // namespace dlprim::bindings
