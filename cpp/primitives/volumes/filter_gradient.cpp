#include "primitives/volumes/filter_gradient.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "primitives/products/product_run.h"
#include "primitives/tensor/workspace.h"
#include "primitives/volumes/pixel_statement.h"

namespace dlprim {
namespace {

// How the product goes through both arrays.
struct GradientForm {
    bool is_flat = false;  // all pixels as one index, what is between them zeros of diff_dst
    VolumeOrder diff_dst = VolumeOrder::plain;
    bool copies_src = false;
    VolumeOrder src = VolumeOrder::plain;
    const char* result = "gkctrs";  // indices from the outermost to the innermost
};

class FormedGradient {
public:
    FormedGradient(DType dtype, const VolumeShape& shape, const GradientForm& form)
        : dtype_(dtype),
          shape_(shape),
          form_(form),
          src_{shape.N, shape.groups, shape.group_C(), {}},
          dst_{shape.N, shape.groups, shape.group_K(), {}},
          statement_(dtype, DType::f32) {
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            const VolumeAxis& axis = shape.axes[i];
            src_.extents[i] = form.copies_src ? axis.length() : axis.extent;
            dst_.extents[i] = form.is_flat ? src_.extents[i] : axis.results;
        }
        src_strides_ = strides_of(src_, form.src);
        dst_strides_ = strides_of(dst_, form.diff_dst);
        if (form.copies_src) {
            src_elements = src_.elements();
            src.emplace(padded_copy(dtype, shape.axes, src_, src_strides_));
        }
        if (form.diff_dst != VolumeOrder::plain) copy_diff_dst();
        write();
    }

    BoundProduct product() const { return statement_.product(false); }
    // With the copies.
    ProductChoice choice() const {
        ProductChoice made(product(), along_);
        made.cycles *= static_cast<double>(shape_.axes[0].taps);
        for (const auto* copy : {&src, &diff_dst}) {
            if (*copy) made.cycles += (*copy)->cycles();
        }
        return made;
    }
    bool is_flat() const { return form_.is_flat; }
    std::int64_t taps() const { return shape_.axes[0].taps; }
    // Bytes from the elements that a tap along the depth reads, and writes, to the next one's.
    std::int64_t src_step() const {
        return shape_.axes[0].spread * src_strides_.axes[0] * size_of(dtype_);
    }
    std::int64_t result_step() const {
        return written().dimension('t').levels.front().stride * size_of(DType::f32);
    }

    // (g, k, c, t, r, s) as the product writes them, and plain.
    Layout written() const { return layout(form_.result); }
    Layout plain() const { return layout("gkctrs"); }

    std::optional<VolumeCopy> src = {};
    std::optional<VolumeCopy> diff_dst = {};
    std::int64_t src_elements = 0;
    std::int64_t dst_elements = 0;

private:
    std::int64_t extent(char index) const {
        if (index == 'g') return shape_.groups;
        if (index == 'k') return shape_.group_K();
        if (index == 'c') return shape_.group_C();
        return shape_.axes[std::string("trs").find(index)].taps;
    }

    Layout layout(const std::string& order) const {
        std::vector<Indices> extents, levels;
        for (const char index : std::string("gkctrs")) extents.push_back({index, extent(index)});
        for (const char index : order) levels.push_back({index, extent(index)});
        return stored_layout(DType::f32, extents, levels);
    }

    void copy_diff_dst() {
        VolumeArray plain = dst_;
        VolumeCopy::Ends ends{.what = dst_, .to = dst_strides_};
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            plain.extents[i] = ends.parts[i].count = shape_.axes[i].results;
        }
        ends.from = strides_of(plain, VolumeOrder::plain);
        dst_elements = dst_.elements();
        if (plain.extents != dst_.extents) ends.zeros = dst_.pixels();
        diff_dst.emplace(dtype_, ends);
    }

    void write() {
        const Layout result = written();
        const auto to = [&](char index) { return result.dimension(index).levels.front().stride; };
        statement_.add("g", shape_.groups, {to('g'), dst_strides_.group, src_strides_.group});
        statement_.add("k", extent('k'), {to('k'), dst_strides_.channel, 0});
        statement_.add("c", extent('c'), {to('c'), 0, src_strides_.channel});
        std::int64_t first = 0, flat = (shape_.N - 1) * src_.pixels() + 1, pixels = 1;
        for (std::size_t i = kVolumeAxes; i-- > 0;) {
            const VolumeAxis& axis = shape_.axes[i];
            // Those along the depth are products apart, so that indices are few.
            if (i > 0)
                statement_.add(name_of_tap(i), axis.taps,
                               {to(name_of_tap(i).front()), 0, axis.spread * src_strides_.axes[i]});
            if (!form_.copies_src) first -= axis.before * src_strides_.axes[i];
            flat += (axis.results - 1) * pixels;
            pixels *= src_.extents[i];
        }
        statement_.begin({.b = first});
        const bool are_neighbours = dst_strides_.axes[2] == 1 && src_strides_.axes[2] == 1;
        if (are_neighbours) along_ = form_.is_flat ? flat : shape_.axes[2].results;
        if (form_.is_flat) {
            statement_.add("j", flat, {0, dst_strides_.axes[2], src_strides_.axes[2]});
            return;
        }
        statement_.add("n", shape_.N, {0, dst_strides_.image, src_strides_.image});
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            const VolumeAxis& axis = shape_.axes[i];
            statement_.add(name_of_pixel(i), axis.results,
                           {0, dst_strides_.axes[i], axis.step * src_strides_.axes[i]});
        }
    }

    DType dtype_;
    const VolumeShape& shape_;
    GradientForm form_;
    VolumeArray src_;
    VolumeArray dst_;
    VolumeStrides src_strides_ = {};
    VolumeStrides dst_strides_ = {};
    PixelStatement statement_;
    std::int64_t along_ = 1;  // neighbours of both arrays
};

std::vector<GradientForm> gradient_forms(const VolumeShape& shape, bool may_be_flat) {
    const auto all = [&](auto holds) {
        return std::all_of(shape.axes.begin(), shape.axes.end(), holds);
    };
    const VolumeOrder plain = VolumeOrder::plain, planes = VolumeOrder::planes,
                      last = VolumeOrder::last;
    const bool copies = !all([](const VolumeAxis& it) { return it.is_inside(); });
    std::vector<GradientForm> forms;
    forms.push_back({false, plain, copies, copies ? planes : plain, "gkctrs"});
    forms.push_back({false, plain, true, last, "gkstrc"});
    forms.push_back({false, last, copies, copies ? planes : plain, "gctrsk"});
    if (!may_be_flat || !all([](const VolumeAxis& it) { return it.is_dense(); })) return forms;
    forms.push_back({true, planes, true, planes, "gkctrs"});
    forms.push_back({true, planes, true, last, "gkstrc"});
    forms.push_back({true, last, true, planes, "gctrsk"});
    return forms;
}

bool all_finite(const float* values, std::int64_t count) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    bool all = true;
    for (std::int64_t i = 0; i < count; ++i) {
        all &= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) != kExponent;
    }
    return all;
}

}  // namespace

struct FilterGradient::Made {
    // By the cheapest form.
    static std::unique_ptr<const Made> of(DType dtype, const VolumeShape& shape, bool may_be_flat) {
        std::optional<FormedGradient> best;
        ProductChoice chosen;
        for (const GradientForm& form : gradient_forms(shape, may_be_flat)) {
            FormedGradient made(dtype, shape, form);
            const ProductChoice choice = made.choice();
            if (choice.cycles >= chosen.cycles) continue;
            chosen = choice;
            best.emplace(std::move(made));
        }
        return std::make_unique<const Made>(best.value(), chosen, size_of(dtype));
    }

    Made(const FormedGradient& it, const ProductChoice& choice, std::int64_t element)
        : is_flat(it.is_flat()),
          cycles(choice.cycles),
          product(choice.made(it.product())),
          src(it.src),
          diff_dst(it.diff_dst),
          taps(it.taps()),
          src_step(it.src_step()),
          result_step(it.result_step()),
          src_bytes(aligned(it.src_elements * element)),
          dst_bytes(aligned(it.dst_elements * element)) {
        if (it.written() == it.plain()) return;
        result.emplace(it.written(), it.plain());
        result_bytes = aligned(it.plain().bytes());
    }

    void run(const char* diff_dst, const char* src, float* diff_weights) const;

    bool is_flat;
    double cycles;
    ProductRun product;
    std::optional<VolumeCopy> src;
    std::optional<VolumeCopy> diff_dst;
    std::optional<Reorder> result = {};
    std::int64_t taps;  // along the depth
    std::int64_t src_step;
    std::int64_t result_step;
    std::int64_t src_bytes;
    std::int64_t dst_bytes;
    std::int64_t result_bytes = 0;
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();
};

void FilterGradient::Made::run(const char* from_dst, const char* from_src,
                               float* diff_weights) const {
    const WorkspacePool::Lease scratch(*workspaces, src_bytes + dst_bytes + result_bytes);
    ScratchCutter cutter(scratch.data());
    char* const read = cutter.take(src_bytes);
    char* const gradient = cutter.take(dst_bytes);
    char* const sums = cutter.take(result_bytes);
    if (src) src->run(from_src, read);
    if (diff_dst) diff_dst->run(from_dst, gradient);
    const char* const first = src ? read : from_src;
    char* const to = result ? sums : reinterpret_cast<char*>(diff_weights);
    for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::array<const void*, 2> operands = {diff_dst ? gradient : from_dst,
                                                     first + tap * src_step};
        product.run(operands, to + tap * result_step);
    }
    if (result) result->run(sums, diff_weights);
}

FilterGradient::FilterGradient(DType dtype, const VolumeShape& shape)
    : dtype_(dtype), shape_(shape), made_(Made::of(dtype, shape, true)) {}

FilterGradient::~FilterGradient() = default;

double FilterGradient::cycles() const { return made_->cycles; }

void FilterGradient::run(const char* diff_dst, const char* src, float* diff_weights) const {
    made_->run(diff_dst, src, diff_weights);
    const std::int64_t elements = shape_.K * shape_.group_C() * shape_.taps();
    if (!made_->is_flat || all_finite(diff_weights, elements)) return;
    // The zeros between pixels met an infinity or NaN, perhaps one that the filter does not read
    // there.
    std::call_once(apart_made_, [&] { apart_ = Made::of(dtype_, shape_, false); });
    apart_->run(diff_dst, src, diff_weights);
}

}  // namespace dlprim
