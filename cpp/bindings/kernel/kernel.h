// The kernel as a Python object. Calling one is the library's shortest path from Python to machine
// code, so its checks are made here in C++ and nothing is allocated for stride addressing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "bindings/kernel/batch_operand.h"
#include "brgemm/brgemm.h"

namespace dlprim::bindings {

// The arguments of a call as Python passed them.
struct CallArguments {
    OperandArguments a, b;
    py::handle c;
    py::handle batch = Py_None, bias = Py_None, scale = Py_None, residual = Py_None;
    py::handle relu_mask = Py_None, zero_point_a = Py_None, zero_point_b = Py_None;
};

class Kernel {
public:
    Kernel(const BrgemmSpec& spec, Isa isa) : kernel_(brgemm(spec, isa)) {}

    // pybind11 allocates an object whose __init__ has not run (or has raised) when it is used all
    // the same; zeros make that a null pointer, which brgemm_kernel() notices.
    static void* operator new(std::size_t size) {
        return std::memset(::operator new(size), 0, size);
    }
    static void* operator new(std::size_t, void* place) { return place; }

    // Throws py::type_error when __init__ has not run.
    const Brgemm& brgemm_kernel() const {
        if (!kernel_) throw pybind11::type_error("this Brgemm was never initialised");
        return *kernel_;
    }

    // Throws py::type_error or py::value_error before anything is written.
    void call(const CallArguments& arguments) const;

    // Seconds per call of `repeats` calls in a row.
    double measure(const CallArguments& arguments, std::int64_t repeats) const;

private:
    std::shared_ptr<const Brgemm> kernel_;
};

}  // namespace dlprim::bindings
