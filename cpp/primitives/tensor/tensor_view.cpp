#include "primitives/tensor/tensor_view.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dlprim {

std::int64_t TensorView::elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count = checked_product(count, extent);
    return count;
}

TensorView dense_view(std::string name, DType dtype, const Shape& shape) {
    TensorView made{.name = std::move(name),
                    .dtype = dtype,
                    .shape = shape,
                    .strides = std::vector<std::int64_t>(shape.size())};
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        made.strides[i] = stride;
        stride = checked_product(stride, std::max<std::int64_t>(shape[i], 1));
    }
    return made;
}

}  // namespace dlprim
