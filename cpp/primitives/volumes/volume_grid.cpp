#include "primitives/volumes/volume_grid.h"

#include <algorithm>
#include <cstring>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Cycles of a copy: that begin it, of an element that stays beside its neighbours or does not, and
// of each row of neighbours.
constexpr double kCopy = 800;
constexpr double kNeighbour = 1;
constexpr double kMoved = 2;
constexpr double kAlone = 12;  // that lies apart from its neighbours in one array and the other
constexpr double kCopiedRow = 6;
constexpr double kZero = 0.25;
// Elements from neighbour to neighbour of a row, of which each is moved by itself: a transposition
// is faster where they are farther apart.
constexpr std::int64_t kNear = 4;

void write_zeros(char* to, std::int64_t bytes) {
    constexpr std::int64_t kPiece = 1 << 16;
    const Blocks pieces{bytes, kPiece};
    parallel_for(pieces.count(), [&](std::int64_t i) {
        const Range piece = pieces.at(i);
        std::memset(to + piece.begin, 0, static_cast<std::size_t>(piece.size()));
    });
}

// Two pieces of a known size, which may overlap, move a row that is no longer than both.
template <std::size_t size>
void copy_ends(const char* from, char* to, std::size_t bytes) {
    std::memcpy(to, from, size);
    std::memcpy(to + bytes - size, from + bytes - size, size);
}

// Of a few elements, for which a call of memcpy takes longer than they do.
void copy_row(const char* from, char* to, std::size_t bytes) {
    constexpr std::size_t kShort = 128, kPiece = 16;
    if (bytes > kShort) {
        std::memcpy(to, from, bytes);
    } else if (bytes >= kPiece) {
        for (std::size_t i = kPiece; i + kPiece < bytes; i += kPiece) {
            std::memcpy(to + i, from + i, kPiece);
        }
        copy_ends<kPiece>(from, to, bytes);
    } else if (bytes >= kPiece / 2) {
        copy_ends<kPiece / 2>(from, to, bytes);
    } else if (bytes >= kPiece / 4) {
        copy_ends<kPiece / 4>(from, to, bytes);
    } else {
        copy_ends<kPiece / 8>(from, to, bytes);
    }
}

struct RowSteps {
    std::int64_t from;
    std::int64_t to;
};

template <class Element>
void move_row(const char* from, char* to, std::int64_t count, const RowSteps& steps) {
    const auto* const in = reinterpret_cast<const Element*>(from);
    auto* const out = reinterpret_cast<Element*>(to);
    for (std::int64_t i = 0; i < count; ++i) out[i * steps.to] = in[i * steps.from];
}

Layout layout_of(DType dtype, const VolumeArray& what, const VolumeStrides& strides) {
    Layout made{.dtype = dtype};
    const auto add = [&](char letter, std::int64_t extent, std::int64_t stride) {
        made.dimensions.push_back({letter, extent, {{extent, stride}}});
    };
    add('n', what.images, strides.image);
    add('g', what.groups, strides.group);
    add('c', what.channels, strides.channel);
    for (std::size_t i = 0; i < kVolumeAxes; ++i) add("dhw"[i], what.extents[i], strides.axes[i]);
    return made;
}

}  // namespace

VolumeStrides strides_of(const VolumeArray& array, VolumeOrder order) {
    const std::int64_t pixels = array.pixels();
    VolumeStrides made;
    std::int64_t pixel = 1;
    switch (order) {
        case VolumeOrder::plain:
            made.channel = pixels;
            made.group = array.channels * pixels;
            made.image = array.groups * made.group;
            break;
        case VolumeOrder::planes:
            made.image = pixels;
            made.channel = array.images * pixels;
            made.group = array.channels * made.channel;
            break;
        case VolumeOrder::last:
            made.channel = 1;
            made.group = array.channels;
            pixel = array.groups * array.channels;
            made.image = pixels * pixel;
            break;
    }
    for (std::size_t i = kVolumeAxes; i-- > 0;) {
        made.axes[i] = pixel;
        pixel *= array.extents[i];
    }
    return made;
}

VolumeCopy::VolumeCopy(DType dtype, const Ends& ends) : dtype_(dtype), ends_(ends) {
    for (std::size_t i = 0; i < kVolumeAxes; ++i) {
        const AxisPart& part = ends.parts[i];
        ends_.what.extents[i] = part.count;
        from_ += part.from * ends.from.axes[i] * size_of(dtype);
        to_ += part.to * ends.to.axes[i] * size_of(dtype);
    }
    const VolumeArray& what = ends_.what;
    const auto elements = static_cast<double>(what.elements());
    const auto volumes = static_cast<double>(what.images * what.groups * what.channels);
    const std::int64_t nearer = std::min(ends.from.axes[2], ends.to.axes[2]);
    const std::int64_t farther = std::max(ends.from.axes[2], ends.to.axes[2]);
    const double moved = stays() || nearer == 1 ? kMoved : kAlone;
    cycles_ = kCopy + kZero * volumes * static_cast<double>(ends.zeros);
    if (elements == 0) return;
    cycles_ += elements * (farther == 1 ? kNeighbour : moved) +
               kCopiedRow * elements / static_cast<double>(what.extents[2]);
    if (stays()) return;
    reorder_.emplace(layout_of(dtype, what, ends.from), layout_of(dtype, what, ends.to));
}

// Also a stride apart; zeros are written to volumes that lie apart from each other.
bool VolumeCopy::stays() const {
    const std::int64_t farther = std::max(ends_.from.axes[2], ends_.to.axes[2]);
    return farther <= kNear && (ends_.zeros == 0 || ends_.to.axes[2] == 1);
}

VolumeCopy padded_copy(DType dtype, const VolumeAxes& axes, const VolumeArray& to,
                       const VolumeStrides& strides) {
    VolumeArray plain = to;
    VolumeCopy::Ends ends{.what = to, .to = strides};
    bool is_whole = true;
    for (std::size_t i = 0; i < kVolumeAxes; ++i) {
        const VolumeAxis& axis = axes[i];
        plain.extents[i] = axis.extent;
        AxisPart& part = ends.parts[i];
        part.to = std::clamp<std::int64_t>(axis.before, 0, to.extents[i]);
        part.from = part.to - axis.before;
        part.count = std::clamp<std::int64_t>(axis.extent - part.from, 0, to.extents[i] - part.to);
        is_whole = is_whole && part.count == to.extents[i];
    }
    ends.from = strides_of(plain, VolumeOrder::plain);
    if (!is_whole) ends.zeros = to.pixels();
    return {dtype, ends};
}

void VolumeCopy::copy_rows(const char* from, char* to) const {
    const VolumeArray& what = ends_.what;
    const std::int64_t element = size_of(dtype_);
    const auto zeros = static_cast<std::size_t>(ends_.zeros * element);
    const std::int64_t columns = what.extents[2], rows = columns == 0 ? 0 : what.extents[1];
    const RowSteps steps{ends_.from.axes[2], ends_.to.axes[2]};
    const bool are_neighbours = steps.from == 1 && steps.to == 1;
    parallel_for(what.images * what.groups * what.channels, [&](std::int64_t volume) {
        const std::int64_t c = volume % what.channels, g = volume / what.channels % what.groups;
        const std::int64_t n = volume / what.channels / what.groups;
        const auto at = [&](const VolumeStrides& it) {
            return (n * it.image + g * it.group + c * it.channel) * element;
        };
        char* const first = to + at(ends_.to);
        if (zeros > 0) std::memset(first, 0, zeros);
        for (std::int64_t d = 0; d < what.extents[0]; ++d) {
            const char* in = from + from_ + at(ends_.from) + d * ends_.from.axes[0] * element;
            char* out = first + to_ + d * ends_.to.axes[0] * element;
            for (std::int64_t h = 0; h < rows; ++h) {
                if (are_neighbours) {
                    copy_row(in, out, static_cast<std::size_t>(columns * element));
                } else if (element == size_of(DType::f32)) {
                    move_row<std::uint32_t>(in, out, columns, steps);
                } else {
                    move_row<std::uint16_t>(in, out, columns, steps);
                }
                in += ends_.from.axes[1] * element;
                out += ends_.to.axes[1] * element;
            }
        }
    });
}

void VolumeCopy::run(const char* from, char* to) const {
    const VolumeArray& what = ends_.what;
    if (stays()) return copy_rows(from, to);
    if (ends_.zeros > 0) {
        const std::int64_t volumes = what.images * what.groups * what.channels;
        write_zeros(to, volumes * ends_.zeros * size_of(dtype_));
    }
    if (reorder_) reorder_->run(from + from_, to + to_);
}

}  // namespace dlprim
