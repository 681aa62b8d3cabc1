#include "graph/functions/nonzero_places.h"

#include <limits>
#include <stdexcept>

namespace dlprim {
namespace {

template <typename Bits>
struct Elements {
    const Bits* data;
    Bits mask;

    bool is_there(std::int64_t i) const { return (data[i] & mask) != 0; }
};

template <typename Bits>
Elements<Bits> elements_of(const FoundElements& given) {
    const auto all = std::numeric_limits<Bits>::max();
    return {static_cast<const Bits*>(given.data),
            static_cast<Bits>(given.is_float ? all >> 1 : all)};
}

template <typename Function>
auto of_elements(const FoundElements& given, const Function& function) {
    switch (given.bytes) {
        case 1: return function(elements_of<std::uint8_t>(given));
        case 2: return function(elements_of<std::uint16_t>(given));
        case 4: return function(elements_of<std::uint32_t>(given));
        case 8: return function(elements_of<std::uint64_t>(given));
        default: throw std::invalid_argument("elements are of 1, 2, 4 or 8 bytes");
    }
}

std::int64_t size_of(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return size;
}

// Of the rows in front of the last axis: the place of each along the axes.
class RowPlace {
public:
    explicit RowPlace(const std::vector<std::int64_t>& shape)
        : shape_(shape), at_(shape.empty() ? 1 : shape.size(), 0) {}

    void write(std::int64_t column, std::int64_t count, std::int64_t* places) const {
        const std::size_t last = at_.size() - 1;
        for (std::size_t axis = 0; axis < last; ++axis) {
            places[static_cast<std::int64_t>(axis) * count] = at_[axis];
        }
        places[static_cast<std::int64_t>(last) * count] = column;
    }

    void advance() {
        for (std::size_t axis = at_.size() - 1; axis-- > 0;) {
            if (++at_[axis] < shape_[axis]) return;
            at_[axis] = 0;
        }
    }

private:
    const std::vector<std::int64_t>& shape_;
    std::vector<std::int64_t> at_;
};

}  // namespace

std::int64_t count_nonzero(const FoundElements& given) {
    return of_elements(given, [&](const auto& elements) {
        const std::int64_t size = size_of(given.shape);
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < size; ++i) count += elements.is_there(i) ? 1 : 0;
        return count;
    });
}

void nonzero_places(const FoundElements& given, std::int64_t count, std::int64_t* places) {
    if (count == 0) return;
    const std::int64_t size = size_of(given.shape);
    const std::int64_t columns = given.shape.empty() ? 1 : given.shape.back();
    of_elements(given, [&](const auto& elements) {
        RowPlace row(given.shape);
        std::int64_t found = 0;
        for (std::int64_t first = 0; first < size && found < count; first += columns) {
            for (std::int64_t i = 0; i < columns && found < count; ++i) {
                if (elements.is_there(first + i)) row.write(i, count, places + found++);
            }
            row.advance();
        }
    });
}

}  // namespace dlprim
