// One of A and B as Python passed it: arrays and how they are addressed, checked against the shape
// that the kernel was made for. Offsets are copied, so that nothing can change them in between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
};

// What was passed for an operand, and what sentences call it.
struct OperandArguments {
    const char* name;
    const char* stride_name;
    const char* offsets_name;
    py::handle array;
    py::handle stride = Py_None;
    py::handle offsets = Py_None;
};

[[noreturn]] inline void refuse(const std::string& sentence) { throw py::value_error(sentence); }

// Where the matrices are, with the memory that holds them kept alive.
class BatchOperand {
public:
    // Throws py::type_error or py::value_error.
    BatchOperand(Addressing addressing, const OperandArguments& from, const OperandShape& shape);

    // How many its shape implies; -1 when it implies none.
    std::int64_t batch() const { return batch_; }
    std::int64_t stride() const { return stride_; }
    const std::int64_t* offsets() const { return offsets_.data(); }
    const void* base() const;

    // Refuses unless all `batch` matrices lie inside the operand's memory.
    void require_inside(std::int64_t batch) const;
    // Refuses a result that overlaps the operand.
    void require_apart_from(const ArrayView& result) const;

private:
    void take_strided();
    void take_by_offset();
    void take_by_address();
    void require_matrix(const ArrayView& view) const;
    void refuse_given(const char* name) const;

    Addressing addressing_;
    OperandArguments from_;
    OperandShape shape_;
    std::vector<ArrayView> arrays_ = {};  // one, or one per matrix with Addressing::address
    std::vector<const void*> pointers_ = {};
    std::vector<std::int64_t> offsets_ = {};
    std::int64_t stride_ = 0;
    std::int64_t batch_ = -1;
    bool reads_between_ = false;  // elements of a view, where an explicit stride leads there
};

}  // namespace dlprim::bindings
