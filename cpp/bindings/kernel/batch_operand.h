// One of A and B as Python passed it: arrays and how they are addressed, checked against the shape
// that the kernel was made for. Offsets are copied, so that nothing can change them in between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "bindings/arrays/array.h"
#include "brgemm/spec.h"

namespace dlprim::bindings {

struct OperandShape {
    DType dtype;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t group;  // elements of k side by side in a packed B, else 1
    std::int64_t ld;
    std::int64_t span;  // bytes of one matrix

    int axes() const { return group > 1 ? 3 : 2; }

    void require(const ArrayView& view) const {
        if (group > 1) {
            view.require_packed(rows, columns, group, ld);
        } else {
            view.require_matrix(rows, columns, ld);
        }
    }
};

// Where the matrices are, with the memory that holds them kept alive.
struct BatchOperand {
    std::vector<ArrayView> arrays;  // one, or one per matrix with Addressing::address
    std::vector<const void*> pointers;
    std::vector<std::int64_t> offsets;
    std::int64_t stride = 0;
    std::int64_t batch = -1;     // that its shape implies; -1 when it implies none
    bool reads_between = false;  // elements of a view, where an explicit stride leads there

    const void* base() const {
        if (arrays.empty()) return nullptr;  // an empty list of matrices
        return pointers.empty() ? static_cast<const void*>(arrays.front().data())
                                : static_cast<const void*>(pointers.data());
    }
};

[[noreturn]] inline void refuse(const std::string& sentence) { throw py::value_error(sentence); }

// What the arguments of an operand are called, and what was passed for them.
struct OperandNames {
    const char* operand;
    const char* stride;
    const char* offsets;
};

struct OperandArguments {
    py::handle operand;
    py::handle stride;
    py::handle offsets;
};

// Throws py::type_error or py::value_error.
BatchOperand checked_operand(Addressing addressing, const OperandNames& names,
                             const OperandArguments& arguments, const OperandShape& shape);

// Refuses unless all `batch` matrices lie inside the operand's memory.
void require_inside(const BatchOperand& operand, std::int64_t batch, const OperandShape& shape,
                    const char* stride_name, bool stride_given);

}  // namespace dlprim::bindings
