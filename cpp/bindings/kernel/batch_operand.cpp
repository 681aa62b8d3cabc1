#include "bindings/kernel/batch_operand.h"

#include <string>

namespace dlprim::bindings {
namespace {

BatchOperand strided(const char* name, py::handle object, const char* stride_name,
                     py::handle stride, const OperandShape& shape) {
    BatchOperand operand;
    operand.arrays.emplace_back(name, object, shape.dtype);
    const ArrayView& view = operand.arrays.front();
    const bool explicit_stride = !stride.is_none();
    const bool raw_memory = view.ndim() == 1 || (explicit_stride && view.is_c_contiguous());
    if (raw_memory) {
        if (!view.is_c_contiguous()) refuse(view.description() + ", expected contiguous memory");
    } else {
        if (view.ndim() > shape.axes() + 1) {
            refuse(view.description() +
                   ", expected one matrix or (batch, ...) of them; "
                   "memory of any other shape needs " +
                   stride_name);
        }
        shape.require(view);
    }
    if (view.ndim() == shape.axes() + 1 && !raw_memory) {
        operand.batch = view.shape(0);
        operand.stride = view.stride(0);
    }
    operand.stride = integer_or(stride_name, stride, operand.stride);
    operand.reads_between = explicit_stride && !raw_memory;
    return operand;
}

std::vector<std::int64_t> offsets_of(const char* name, py::handle object) {
    if (object.is_none()) refuse(std::string(name) + " is missing, expected byte offsets (int64)");
    if (!py::isinstance<py::array>(object)) {
        throw py::type_error(std::string(name) + " is not a NumPy array, expected one of int64");
    }
    const auto array = py::reinterpret_borrow<py::array>(object);
    if (!array.dtype().equal(py::dtype::of<std::int64_t>()) || array.ndim() != 1) {
        throw py::type_error(
            std::string(name) + " has dtype " + std::string(py::str(array.dtype())) + " and " +
            std::to_string(array.ndim()) + " dimensions, expected a vector of int64");
    }
    const auto values = py::array_t<std::int64_t>(array);
    const auto view = values.unchecked<1>();
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(view.shape(0)));
    for (py::ssize_t i = 0; i < view.shape(0); ++i) offsets[static_cast<std::size_t>(i)] = view(i);
    return offsets;
}

BatchOperand by_offset(const char* name, py::handle object, const char* offsets_name,
                       py::handle offsets, const OperandShape& shape) {
    BatchOperand operand;
    operand.arrays.emplace_back(name, object, shape.dtype);
    const ArrayView& view = operand.arrays.front();
    if (!view.is_c_contiguous()) refuse(view.description() + ", expected contiguous memory");
    operand.offsets = offsets_of(offsets_name, offsets);
    operand.batch = static_cast<std::int64_t>(operand.offsets.size());
    return operand;
}

BatchOperand by_address(const char* name, py::handle object, const OperandShape& shape) {
    if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object)) {
        throw py::type_error(std::string(name) +
                             " is not a list or tuple, expected one array per matrix "
                             "(addressing='address')");
    }
    BatchOperand operand;
    // A copy of the list: looking at an item can run Python code, which could change the list.
    const py::tuple items(py::reinterpret_borrow<py::object>(object));
    for (const py::handle item : items) {
        const ArrayView& view = operand.arrays.emplace_back(name, item, shape.dtype);
        if (view.ndim() != shape.axes()) {
            refuse(view.description() + ", expected " + (shape.axes() == 2 ? "two" : "three") +
                   " dimensions");
        }
        shape.require(view);
        operand.pointers.push_back(view.data());
    }
    operand.batch = static_cast<std::int64_t>(operand.arrays.size());
    return operand;
}

void refuse_given(const char* name, Addressing addressing) {
    refuse(std::string(name) + " is given, but the kernel's addressing is '" +
           std::string(name_of(addressing)) + "'");
}

}  // namespace

BatchOperand checked_operand(Addressing addressing, const OperandNames& names,
                             const OperandArguments& arguments, const OperandShape& shape) {
    if (addressing != Addressing::stride && !arguments.stride.is_none()) {
        refuse_given(names.stride, addressing);
    }
    if (addressing != Addressing::offset && !arguments.offsets.is_none()) {
        refuse_given(names.offsets, addressing);
    }
    switch (addressing) {
        case Addressing::address: return by_address(names.operand, arguments.operand, shape);
        case Addressing::offset:
            return by_offset(names.operand, arguments.operand, names.offsets, arguments.offsets,
                             shape);
        case Addressing::stride: break;
    }
    return strided(names.operand, arguments.operand, names.stride, arguments.stride, shape);
}

void require_inside(const BatchOperand& operand, std::int64_t batch, const OperandShape& shape,
                    const char* stride_name, bool stride_given) {
    if (batch == 0 || !operand.pointers.empty()) return;
    const ArrayView& view = operand.arrays.front();
    if (!operand.offsets.empty()) {
        for (std::int64_t i = 0; i < batch; ++i) {
            view.require_inside(operand.offsets[static_cast<std::size_t>(i)], shape.span);
        }
        return;
    }
    if (batch > 1 && operand.batch < 0 && !stride_given) {
        refuse(std::string(stride_name) + " is missing: " + view.description() +
               " does not say where the " + std::to_string(batch) + " matrices are");
    }
    std::int64_t last = 0;
    if (__builtin_mul_overflow(batch - 1, operand.stride, &last)) {
        refuse(std::string(stride_name) + " times the batch does not fit in 64 bits");
    }
    view.require_inside(0, shape.span);
    view.require_inside(last, shape.span);
    if (batch > 1) view.require_inside(operand.stride, shape.span);
}

}  // namespace dlprim::bindings
