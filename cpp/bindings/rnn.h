// The recurrent primitives as Python sees them: every check of an operand is made here, before the
// core gets a pointer, and the GIL is released around the work. A pass has a dozen operands, so
// they come as a dict of arrays by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/array.h"
#include "bindings/array_pool.h"
#include "primitives/rnn/rnn.h"

namespace dlprim::bindings {

class PyRnn {
public:
    // `extents` are T, N, C and K.
    PyRnn(const std::string& cell, const std::vector<std::int64_t>& extents,
          const std::string& dtype, bool reverse);

    void forward(const py::dict& operands) const;
    void backward(const py::dict& operands) const;
    void pack_weights(const py::dict& operands) const;
    void transpose_weights(const py::dict& operands) const;

    // Memory for a result.
    py::array empty(std::int64_t bytes) const { return pool_->empty(bytes); }

    // Of the packed arrays, by name.
    py::dict packed_shapes() const;

    const Rnn& core() const { return rnn_; }
    Rnn& core() { return rnn_; }

private:
    using Shape = std::vector<std::int64_t>;

    // What every operand and result looks like, by its name.
    struct Form {
        DType dtype;
        Shape shape;
    };
    Form form(const std::string& name) const;
    Shape packed_shape(const std::string& name) const;
    class Operands;

    Rnn rnn_;
    std::shared_ptr<ArrayPool> pool_ = std::make_shared<ArrayPool>();
};

}  // namespace dlprim::bindings
