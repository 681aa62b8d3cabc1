// What a network knows of an array: everything but where it is. Types are names and sizes alone,
// because a network moves and places values of any type, and what computes with them knows its own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dlprim {

struct NetworkTensor {
    std::string dtype = {};    // NumPy's name
    std::int64_t element = 4;  // bytes
    std::vector<std::int64_t> shape = {};
    std::vector<std::int64_t> strides = {};  // bytes

    std::int64_t elements() const;
    std::int64_t bytes() const { return elements() * element; }
    bool is_dense() const;  // in C order
    // What the elements occupy, in bytes from the first one.
    std::pair<std::int64_t, std::int64_t> extent() const;

    std::string described() const;  // "float32 (2, 3)"
};

// In C order. Throws std::invalid_argument for an extent below 0 or more bytes than there can be.
NetworkTensor dense_tensor(std::string dtype, std::int64_t element,
                           std::vector<std::int64_t> shape);

// A part of a tensor, in bytes from its first element.
struct TensorPart {
    const NetworkTensor& tensor;
    std::int64_t offset = 0;
};

// Whether two parts of a tensor may share an element: false is certain.
bool may_overlap(const NetworkTensor& whole, const TensorPart& one, const TensorPart& other);

}  // namespace dlprim
