#include "bindings/kernel/batch_operand.h"

#include <string>

namespace dlprim::bindings {
namespace {

void require_contiguous(const ArrayView& view) {
    if (!view.is_c_contiguous()) refuse(view.description() + ", expected contiguous memory");
}

std::vector<std::int64_t> offsets_of(const char* name, py::handle object) {
    if (object.is_none()) refuse(std::string(name) + " is missing, expected byte offsets (int64)");
    if (!py::isinstance<py::array>(object)) {
        throw py::type_error(std::string(name) + " is not a NumPy array, expected one of int64");
    }
    const auto array = py::reinterpret_borrow<py::array>(object);
    if (!py::isinstance<py::array_t<std::int64_t>>(object) || array.ndim() != 1) {
        throw py::type_error(
            std::string(name) + " has dtype " + std::string(py::str(array.dtype())) + " and " +
            std::to_string(array.ndim()) + " dimensions, expected a vector of int64");
    }
    const py::array_t<std::int64_t, py::array::c_style> values(array);
    return {values.data(), values.data() + values.size()};
}

}  // namespace

BatchOperand::BatchOperand(Addressing addressing, const OperandArguments& from,
                           const OperandShape& shape)
    : addressing_(addressing), from_(from), shape_(shape) {
    if (addressing != Addressing::stride && !from.stride.is_none()) refuse_given(from.stride_name);
    if (addressing != Addressing::offset && !from.offsets.is_none()) {
        refuse_given(from.offsets_name);
    }
    switch (addressing) {
        case Addressing::address: take_by_address(); break;
        case Addressing::offset: take_by_offset(); break;
        case Addressing::stride: take_strided(); break;
    }
}

void BatchOperand::refuse_given(const char* name) const {
    refuse(std::string(name) + " is given, but the kernel's addressing is '" +
           std::string(name_of(addressing_)) + "'");
}

void BatchOperand::require_matrix(const ArrayView& view) const {
    view.require_matrix(shape_.rows, shape_.columns, shape_.ld, shape_.group);
}

void BatchOperand::take_strided() {
    const ArrayView& view = arrays_.emplace_back(from_.name, from_.array, shape_.dtype);
    const bool explicit_stride = !from_.stride.is_none();
    const bool raw_memory = view.ndim() == 1 || (explicit_stride && view.is_c_contiguous());
    if (raw_memory) {
        require_contiguous(view);
    } else {
        if (view.ndim() > shape_.axes() + 1) {
            refuse(view.description() +
                   ", expected one matrix or (batch, ...) of them; "
                   "memory of any other shape needs " +
                   from_.stride_name);
        }
        require_matrix(view);
    }
    if (explicit_stride) {
        stride_ = integer_or(from_.stride_name, from_.stride, 0);
        reads_between_ = !raw_memory;
    } else if (view.ndim() == shape_.axes() + 1 && !raw_memory) {
        batch_ = view.shape(0);
        stride_ = view.stride(0);
    }
}

void BatchOperand::take_by_offset() {
    require_contiguous(arrays_.emplace_back(from_.name, from_.array, shape_.dtype));
    offsets_ = offsets_of(from_.offsets_name, from_.offsets);
    batch_ = static_cast<std::int64_t>(offsets_.size());
}

void BatchOperand::take_by_address() {
    if (!py::isinstance<py::list>(from_.array) && !py::isinstance<py::tuple>(from_.array)) {
        throw py::type_error(std::string(from_.name) +
                             " is not a list or tuple, expected one array per matrix "
                             "(addressing='address')");
    }
    // A copy of the list: looking at an item can run Python code, which could change the list.
    const py::tuple items(py::reinterpret_borrow<py::object>(from_.array));
    for (const py::handle item : items) {
        const ArrayView& view = arrays_.emplace_back(from_.name, item, shape_.dtype);
        if (view.ndim() != shape_.axes()) {
            refuse(view.description() + ", expected " + (shape_.axes() == 2 ? "two" : "three") +
                   " dimensions");
        }
        require_matrix(view);
        pointers_.push_back(view.data());
    }
    batch_ = static_cast<std::int64_t>(arrays_.size());
}

const void* BatchOperand::base() const {
    if (arrays_.empty()) return nullptr;  // an empty list of matrices
    return pointers_.empty() ? static_cast<const void*>(arrays_.front().data())
                             : static_cast<const void*>(pointers_.data());
}

void BatchOperand::require_inside(std::int64_t batch) const {
    if (batch == 0 || !pointers_.empty()) return;
    const ArrayView& view = arrays_.front();
    if (!offsets_.empty()) {
        for (std::int64_t i = 0; i < batch; ++i) {
            view.require_inside(offsets_[static_cast<std::size_t>(i)], shape_.span);
        }
        return;
    }
    if (batch > 1 && batch_ < 0 && from_.stride.is_none()) {
        refuse(std::string(from_.stride_name) + " is missing: " + view.description() +
               " does not say where the " + std::to_string(batch) + " matrices are");
    }
    std::int64_t last = 0;
    if (__builtin_mul_overflow(batch - 1, stride_, &last)) {
        refuse(std::string(from_.stride_name) + " times the batch does not fit in 64 bits");
    }
    view.require_inside(0, shape_.span);
    view.require_inside(last, shape_.span);
    if (batch > 1) view.require_inside(stride_, shape_.span);
}

void BatchOperand::require_apart_from(const ArrayView& result) const {
    for (const ArrayView& view : arrays_) result.require_apart(view, reads_between_);
}

}  // namespace dlprim::bindings
