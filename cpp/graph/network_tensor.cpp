#include "graph/network_tensor.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace dlprim {
namespace {

// Of a part of a dense tensor along each axis: the first index. Nothing where it is no box of them.
std::optional<std::vector<std::int64_t>> first_of_box(const NetworkTensor& whole,
                                                      const TensorPart& part) {
    if (!whole.is_dense() || part.tensor.strides != whole.strides) return {};
    std::vector<std::int64_t> first;
    std::int64_t rest = part.offset;
    for (std::size_t i = 0; i < whole.shape.size(); ++i) {
        first.push_back(rest / whole.strides[i]);
        rest -= first.back() * whole.strides[i];
        if (first.back() + part.tensor.shape[i] > whole.shape[i]) return {};
    }
    return first;
}

}  // namespace

std::int64_t NetworkTensor::elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

bool NetworkTensor::is_dense() const {
    std::int64_t stride = element;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] == 0) return true;
        if (shape[i] > 1 && strides[i] != stride) return false;
        stride *= shape[i];
    }
    return true;
}

std::pair<std::int64_t, std::int64_t> NetworkTensor::extent() const {
    if (elements() == 0) return {0, 0};
    std::int64_t low = 0, high = element;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const std::int64_t reach = (shape[i] - 1) * strides[i];
        (reach < 0 ? low : high) += reach;
    }
    return {low, high};
}

std::string NetworkTensor::described() const {
    std::string text = dtype + " (";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + (shape.size() == 1 ? ",)" : ")");
}

NetworkTensor dense_tensor(std::string dtype, std::int64_t element,
                           std::vector<std::int64_t> shape) {
    NetworkTensor made{.dtype = std::move(dtype), .element = element, .shape = std::move(shape)};
    made.strides.resize(made.shape.size());
    // Of the extents that are not 0, so that their product is bounded whatever their order.
    std::int64_t stride = element;
    for (std::size_t i = made.shape.size(); i-- > 0;) {
        const std::int64_t extent = made.shape[i];
        if (extent < 0 ||
            __builtin_mul_overflow(stride, std::max<std::int64_t>(extent, 1), &stride)) {
            throw std::invalid_argument("a value is " + made.described() +
                                        ", expected extents that memory can hold");
        }
        made.strides[i] = stride / std::max<std::int64_t>(extent, 1);
    }
    return made;
}

bool may_overlap(const NetworkTensor& whole, const TensorPart& one, const TensorPart& other) {
    const auto [low, high] = one.tensor.extent();
    const auto [other_low, other_high] = other.tensor.extent();
    if (low == high || other_low == other_high) return false;
    const std::int64_t distance = other.offset - one.offset;
    if (other_high + distance <= low || high <= other_low + distance) return false;
    const auto first = first_of_box(whole, one), other_first = first_of_box(whole, other);
    if (!first || !other_first) return true;
    for (std::size_t i = 0; i < whole.shape.size(); ++i) {
        const std::int64_t begin = (*first)[i], other_begin = (*other_first)[i];
        if (begin + one.tensor.shape[i] <= other_begin ||
            other_begin + other.tensor.shape[i] <= begin) {
            return false;
        }
    }
    return true;
}

}  // namespace dlprim
