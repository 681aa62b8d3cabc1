// The parts of the direct backward-weights pass (direct_weights.cpp): how its operands are brought
// into the form that the kernel multiplies, how much memory that may take, and the description for
// the one driver. Beside its operands the pass takes at most diff_weights in float32 and one image
// of src and of diff_dst for each thread, unless the pairs of a single row of results are more.
// That has to hold sums that are rounded afterwards, copies of sums of parts of the minibatch, and
// packed images.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/conv/conv_contraction.h"
#include "primitives/conv/conv_pass.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// How the sum for a result of one type is divided.
struct WeightsDivision {
    std::int64_t parts = 1;           // of the minibatch, or
    Blocks slices{1, 1};              // of the weights, that are summed one after the other
    std::int64_t index_elements = 0;  // of diff_weights, for each index of the slices
    std::int64_t at_once = 1;         // images that one run of the nest sums
    DType to = DType::f32;

    FixedParts sums(Range indices) const { return {parts, indices.size() * index_elements, to}; }
    std::int64_t sums_bytes() const { return sums(slices.at(0)).scratch_bytes(); }
};

// Sums that are rounded afterwards are taken slice by slice where the weights are larger than an
// image: more bands then find room beside them, and the sums are not read and written for each.
struct WeightsScratch {
    explicit WeightsScratch(const ConvProblem& problem);

    // Bytes for packed images beside the sums of a result of type `to`, or beside the copies of so
    // many parts of the minibatch.
    std::int64_t room(DType to) const;
    std::int64_t room_beside(std::int64_t parts, DType to) const;
    // Of `images`, each of which takes so many bytes when packed; 0: they are read in place.
    WeightsDivision divided(std::int64_t images, std::int64_t packed_bytes, std::int64_t parts,
                            DType to) const;

    // Of the loop whose slices are contiguous.
    char letter() const { return "gkc"[loop]; }

    std::int64_t elements = 0;  // of diff_weights
    std::int64_t weights = 0;   // their bytes in float32
    std::int64_t image = 0;     // bytes of an image of src and diff_dst, as the operands have them
    int loop = 0;               // its number
    Blocks slices = {};         // of its indices
};

// Images as the pass multiplies them. In place; or the pixels of src that a strided pointwise
// filter reads as dense, blocked images: in place half of every row and every second row lie
// between them, so that calls have a short row to sum over and prefetching brings what nobody
// reads, while dense rows can have any length. Where registers are few channels-last images are
// copied for pointwise filters as well. In bfloat16 pixels of a row are in pairs. Rows of
// src stand there once for every way in which the taps pair them, or, for a few channels, once as
// windows of S * C elements. An image whose pairs or copies exceed a share of the cache, or the
// room that is left for them, falls into bands of rows, which count as images of their own.
struct WeightsImages {
    enum class Form : std::uint8_t { in_place, dense, pairs };

    Form form = Form::in_place;
    bool windows = false;          // all taps of a filter row are multiplied at once
    ConvShape whole = {};          // of an image, with the rows that the pass walks
    ConvShape shape = {};          // of a band; N counts bands
    std::int64_t bands = 1;        // of an image
    std::int64_t row_step = 0;     // rows of src from one band to the next
    std::int64_t first_row = 0;    // of src in the first band, below 0 in the padding
    std::int64_t columns_src = 0;  // of a pair: channels of a block, or of a window
    std::int64_t pairs_src = 0;    // in a row
    std::int64_t pairs_dst = 0;
    std::vector<std::int64_t> first = {};  // of each way to pair: the pixel of src it begins with
    std::int64_t src_bytes = 0;            // of a packed image, or band
    std::int64_t dst_bytes = 0;
};

WeightsImages weights_images(const ConvProblem& problem);

// Which sums a contraction is for: of so many images, and of all weights or of one slice of them. A
// and B are those of the first index of the slice.
struct WeightsPart {
    static constexpr int kAll = -1;

    std::int64_t images = 0;
    int slice = kAll;
};

// Loops: g, k, c, t taps, n images, p rows. A: src, B: diff_dst, C: diff_weights in float32; may be
// asked to accumulate. Dense images are in the place of src, of diff_dst, or of both; in pairs A
// and B are packed bands, [band][block][way][row][pairs][bc][2] and
// [band][block][row][pairs][bk][2].
Contraction weights_contraction(const ConvProblem& problem, const WeightsPart& part);

// Brings images into their form, where that is not in place.
class ImagePacker {
public:
    // `images` must outlive the packer.
    ImagePacker(const ConvProblem& problem, const WeightsImages& images);

    // Of the rows of a band in its tensor, in bytes; in the padding the first row of the image.
    std::int64_t src_offset(std::int64_t band) const;
    std::int64_t dst_offset(std::int64_t band) const;

    // Packs one block of channels of one of `images`, which stand one behind the other in `packed`,
    // all of src first; blocks of diff_dst count behind those of src.
    void pack_block(Range images, std::int64_t image, std::int64_t block,
                    const ConvTensors& tensors, char* packed) const;

private:
    // One block of channels of the pixels that a dense band is copied from; distances in elements.
    struct SpacedPixels {
        const float* first = nullptr;
        std::int64_t row = 0;
        std::int64_t pixel = 0;
        std::int64_t channels = 0;
        std::int64_t ld_out = 0;
    };

    void gather(const SpacedPixels& it, float* out) const;
    void pack_src(std::int64_t band, const std::uint16_t* channels, std::int64_t count,
                  std::uint16_t* out) const;
    void pack_windows(const std::uint16_t* row, std::uint16_t* out) const;
    void pack_dst(const std::uint16_t* rows, std::int64_t count, std::uint16_t* out) const;

    const WeightsImages& images_;
    ConvShape from_;  // of the images that are packed
    std::int64_t element_;
    ChannelBlocks in_;
    ChannelBlocks out_;
    ActivationStrides src_;
    ActivationStrides dst_;
    std::vector<bool> is_read_;  // rows of a band that some filter row meets
};

// Pixels of one row of an image, `step` apart, as the pass multiplies them:
// out[i][c] = (pixel first + 2*i*step, pixel first + (2*i+1)*step) of channel c, so that
// neighbours along the sum are side by side. Pixels outside [0, width) and, where `count` is odd,
// the second of the last pair are zeros.
struct PixelPairs {
    const std::uint16_t* row = nullptr;  // bfloat16, pixel 0
    std::int64_t width = 0;              // pixels that exist
    std::int64_t ld = 0;                 // elements from pixel to pixel
    std::int64_t channels = 0;
    std::int64_t first = 0;  // may lie outside
    std::int64_t step = 1;
    std::int64_t count = 0;  // pixels wanted
    std::uint16_t* out = nullptr;
    std::int64_t ld_out = 0;  // pairs from one row of `out` to the next, at least channels
};

// Serial: a piece of some task. Columns of `out` behind the channels are left alone.
void pack_pixel_pairs(const PixelPairs& pairs);

}  // namespace dlprim
