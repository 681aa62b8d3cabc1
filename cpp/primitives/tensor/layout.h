// Where the elements of a tensor are, as a value. Every dimension of a tensor is cut into levels:
// an index is a number in mixed radix whose digits, from the outside in, are multiplied by the
// strides of the levels. Plain arrays have one level per dimension, blocked ones two (block,
// element of the block), those in VNNI form three (the word's neighbours are the third). Plans,
// formulas and copies see nothing else of a tensor, so a new layout is a new value and no new code.
//
// The last block of a dimension may be ragged: its storage is whole. What is behind the last index
// is padding, which reordering fills with zeros and never reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/dtype.h"

namespace dlprim {

// `extent` digits, `stride` elements apart. The outermost extent is what is stored, so the product
// of all is the extent of the dimension with its padding.
struct DimensionLevel {
    std::int64_t extent = 0;
    std::int64_t stride = 0;

    friend bool operator==(const DimensionLevel&, const DimensionLevel&) = default;
};

struct LayoutDimension {
    char letter = 'n';                        // its index in formulas
    std::int64_t extent = 0;                  // indices that exist
    std::vector<DimensionLevel> levels = {};  // from the outside in, at least one

    std::int64_t padded() const;  // indices that are stored
    // Elements from index 0 to `index`, which is at most padded().
    std::int64_t offset(std::int64_t index) const;

    friend bool operator==(const LayoutDimension&, const LayoutDimension&) = default;
};

struct Layout {
    DType dtype = DType::f32;
    std::vector<LayoutDimension> dimensions = {};

    const LayoutDimension& dimension(char letter) const;  // that is there
    bool has(char letter) const;
    // From the first to behind the last one, padding included.
    std::int64_t elements() const;
    std::int64_t bytes() const { return elements() * size_of(dtype); }

    friend bool operator==(const Layout&, const Layout&) = default;
};

// An index and how far it goes: of a whole dimension, or of one of its levels.
struct Indices {
    char letter = 'n';
    std::int64_t extent = 0;
};

// C-contiguous: every dimension one level.
Layout plain_layout(DType dtype, const std::vector<Indices>& order);
// The levels of all dimensions in the order of storage, from the outside in and without gaps. Those
// of one letter hold at least its extent.
Layout stored_layout(DType dtype, const std::vector<Indices>& extents,
                     const std::vector<Indices>& order);

// The two orders of activations: blocks of channels, or channels innermost.
enum class Format : std::uint8_t { blocked, nhwc };

// An operand of a primitive as its callers see it: the form they hold, the form the loops run on,
// and the array that carries the latter. Checks, shapes, packing and unpacking follow from this.
struct TensorForm {
    std::string name;   // "src", "weights", "diff_dst", ...
    Layout plain = {};  // dtype and order of the plain array
    std::vector<std::int64_t> plain_shape = {};
    Layout packed = {};
    std::vector<std::int64_t> packed_shape = {};

    friend bool operator==(const TensorForm&, const TensorForm&) = default;
};

// An operand that is used as its callers hold it.
TensorForm plain_form(std::string name, DType dtype, const std::vector<Indices>& order);
// The one of this name, which is there.
const TensorForm& form_of(const std::vector<TensorForm>& forms, std::string_view name);

}  // namespace dlprim
