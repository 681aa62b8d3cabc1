#include "bindings/parts/rows.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bindings/parts/run.h"

namespace dlprim::bindings {
namespace {

constexpr std::int64_t kFirstRoom = 16;  // rows
constexpr std::int64_t kMostFirstBytes = std::int64_t{1} << 26;

Shape shape_of_array(const py::array& array) {
    return {array.shape(), array.shape() + array.ndim()};
}

}  // namespace

bool KeptRows::is_as(const Shape& shape, const py::dtype& dtype) const {
    return shape == shape_ && dtype.equal(dtype_);
}

py::array KeptRows::of_rows(std::int64_t count) const {
    const std::int64_t row = elements_of(shape_) * dtype_.itemsize();
    if (count > max_bytes_ / (row + 1)) {
        throw py::value_error("what the steps give would take " +
                              std::to_string(count * (row + 1)) + " bytes, expected at most " +
                              std::to_string(max_bytes_) + " (max_bytes)");
    }
    Shape shape = shape_;
    shape.insert(shape.begin(), count);
    return py::reinterpret_borrow<py::array>(new_array({.shape = shape}, dtype_));
}

void KeptRows::make_room() {
    if (!rows_) {
        const std::int64_t row = std::max<std::int64_t>(elements_of(shape_) * dtype_.itemsize(), 1);
        const std::int64_t least = std::max<std::int64_t>(1, kMostFirstBytes / row);
        const std::int64_t most = std::max<std::int64_t>(most_.value_or(kFirstRoom), 1);
        rows_ = of_rows(std::min(most, std::max(least, kFirstRoom)));
    } else if (count_ == rows_->shape(0)) {
        py::array whole = of_rows(2 * count_);
        std::memcpy(whole.mutable_data(), rows_->data(), static_cast<std::size_t>(rows_->nbytes()));
        rows_ = whole;
    }
}

void KeptRows::add(const py::object& row) {
    if (!py::isinstance<py::array>(row)) {
        throw py::value_error("a step gives " + described_value(row) + ", expected an array");
    }
    const auto array = py::array::ensure(row, py::array::c_style);
    const Shape shape = shape_of_array(array);
    if (!rows_) {
        shape_ = shape;
        dtype_ = array.dtype();
    } else if (!is_as(shape, array.dtype())) {
        throw py::value_error("step " + std::to_string(count_) + " gives " + described_value(row) +
                              ", expected " + described_look(shape_, dtype_) + " as the first");
    }
    make_room();
    const auto bytes = static_cast<std::size_t>(array.nbytes());
    if (bytes != 0) {
        std::memcpy(
            static_cast<char*>(rows_->mutable_data()) + static_cast<std::size_t>(count_) * bytes,
            array.data(), bytes);
    }
    ++count_;
}

std::optional<py::array> KeptRows::room(const Shape& shape, const py::dtype& dtype) {
    if (!rows_) {
        shape_ = shape;
        dtype_ = dtype;
    } else if (!is_as(shape, dtype)) {
        return std::nullopt;
    }
    make_room();
    return rows_;
}

py::object KeptRows::array() const {
    if (count_ == 0) return py::none();
    if (count_ == rows_->shape(0)) return *rows_;
    const py::object some = rows_->attr("__getitem__")(py::slice(0, count_, 1));
    return 2 * count_ > rows_->shape(0) ? some : py::object(some.attr("copy")());
}

}  // namespace dlprim::bindings
