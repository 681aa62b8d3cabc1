#include "primitives/tensor/layout.h"

#include <algorithm>
#include <utility>

namespace dlprim {

std::int64_t LayoutDimension::padded() const {
    std::int64_t stored = 1;
    for (const DimensionLevel& level : levels) stored *= level.extent;
    return stored;
}

std::int64_t LayoutDimension::offset(std::int64_t index) const {
    std::int64_t elements = 0;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
        const bool outermost = level + 1 == levels.rend();
        elements += (outermost ? index : index % level->extent) * level->stride;
        if (!outermost) index /= level->extent;
    }
    return elements;
}

const LayoutDimension& Layout::dimension(char letter) const {
    return *std::find_if(dimensions.begin(), dimensions.end(),
                         [&](const LayoutDimension& it) { return it.letter == letter; });
}

bool Layout::has(char letter) const {
    return std::any_of(dimensions.begin(), dimensions.end(),
                       [&](const LayoutDimension& it) { return it.letter == letter; });
}

std::int64_t Layout::elements() const {
    std::int64_t last = 0;
    for (const LayoutDimension& dimension : dimensions) {
        for (const DimensionLevel& level : dimension.levels) {
            if (level.extent == 0) return 0;
            last += (level.extent - 1) * level.stride;
        }
    }
    return last + 1;
}

Layout plain_layout(DType dtype, const std::vector<Indices>& order) {
    return stored_layout(dtype, order, order);
}

Layout stored_layout(DType dtype, const std::vector<Indices>& extents,
                     const std::vector<Indices>& order) {
    Layout made{.dtype = dtype};
    for (const Indices& it : extents) made.dimensions.push_back({it.letter, it.extent, {}});
    std::int64_t stride = 1;
    for (auto level = order.rbegin(); level != order.rend(); ++level) {
        for (LayoutDimension& dimension : made.dimensions) {
            if (dimension.letter != level->letter) continue;
            dimension.levels.insert(dimension.levels.begin(), {level->extent, stride});
        }
        stride *= level->extent;
    }
    return made;
}

TensorForm plain_form(std::string name, DType dtype, const std::vector<Indices>& order) {
    TensorForm made{.name = std::move(name), .plain = plain_layout(dtype, order)};
    for (const Indices& it : order) made.plain_shape.push_back(it.extent);
    made.packed = made.plain;
    made.packed_shape = made.plain_shape;
    return made;
}

const TensorForm& form_of(const std::vector<TensorForm>& forms, std::string_view name) {
    return *std::find_if(forms.begin(), forms.end(),
                         [&](const TensorForm& it) { return it.name == name; });
}

}  // namespace dlprim
