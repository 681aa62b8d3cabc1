// What the runs of a body make, one array each, as one array; memory for it grows as it is needed.
#pragma once

#include <cstdint>
#include <optional>

#include "bindings/graph/network.h"

namespace dlprim::bindings {

class KeptRows {
public:
    // `most` rows, where it is known how many there are at most.
    KeptRows(std::int64_t max_bytes, std::optional<std::int64_t> most)
        : max_bytes_(max_bytes), most_(most) {}

    // Adds a row, which is like the first one; throws py::value_error where it is not.
    void add(const py::object& row);
    // Memory for more rows behind those that there are; nothing for rows of another look.
    std::optional<py::array> room(const Shape& shape, const py::dtype& dtype);
    void has(std::int64_t count) { count_ = count; }
    // All rows; None where there is none.
    py::object array() const;

private:
    bool is_as(const Shape& shape, const py::dtype& dtype) const;
    void make_room();
    py::array of_rows(std::int64_t count) const;

    std::int64_t max_bytes_;
    std::optional<std::int64_t> most_;
    std::int64_t count_ = 0;
    Shape shape_ = {};  // of a row
    py::dtype dtype_ = {};
    std::optional<py::array> rows_ = {};
};

}  // namespace dlprim::bindings
