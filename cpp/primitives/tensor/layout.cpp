#include "primitives/tensor/layout.h"

#include <algorithm>

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

Layout plain_layout(DType dtype, const std::string& letters,
                    const std::vector<std::int64_t>& extents) {
    Layout made{.dtype = dtype};
    std::int64_t stride = 1;
    for (std::size_t i = letters.size(); i-- > 0;) {
        made.dimensions.insert(made.dimensions.begin(),
                               {letters[i], extents[i], {{extents[i], stride}}});
        stride *= extents[i];
    }
    return made;
}

}  // namespace dlprim
