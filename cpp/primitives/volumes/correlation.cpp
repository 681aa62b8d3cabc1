#include "primitives/volumes/correlation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "primitives/products/product_run.h"
#include "primitives/tensor/workspace.h"
#include "primitives/volumes/pixel_statement.h"

namespace dlprim {
namespace {

// How the product goes through the volumes.
struct CorrelationForm {
    bool copies = false;  // what is read, with its padding
    // Of the axes, from the innermost on, as many as are one index, along which results lie as far
    // apart as what is read, and what is between their rows is computed, too, as is what a stride
    // leaves out. All three of a copy are one with the images.
    std::size_t joined = 1;
    VolumeOrder order = VolumeOrder::plain;
};

// How much longer products take that read what is a stride apart.
constexpr double kLongerApart = 1.5;

// A statement in one of the forms, and the copies that it needs.
class FormedCorrelation {
public:
    FormedCorrelation(const Correlation& it, const CorrelationForm& form)
        : it_(it),
          form_(form),
          read_{it.shape.N, it.shape.groups, it.shape.group_C(), {}},
          written_{it.shape.N, it.shape.groups, it.shape.group_K(), {}},
          statement_(it.dtype, it.dtype) {
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            const VolumeAxis& axis = it.shape.axes[i];
            read_.extents[i] = form.copies ? axis.length() : axis.extent;
            const bool is_joined = form.joined > 1 && i >= first_joined();
            written_.extents[i] = is_joined ? read_.extents[i] : axis.results;
        }
        src_ = strides_of(read_, form.order);
        dst_ = form.joined > 1 ? strides_of(written_, form.order) : it.to;
        // Nothing between rows, and results in the order of what is read: they need no copy.
        const bool lies_so =
            form.joined > 1 && written_.pixels() == it.shape.results() && dst_ == it.to;
        if (form.copies) {
            in_elements = read_.elements();
            in.emplace(padded_copy(it.dtype, it.shape.axes, read_, src_));
        }
        if (form.joined > 1 && !lies_so) copy_out();
        write();
    }

    BoundProduct product() const { return statement_.product(it_.bias); }
    // With the copies.
    ProductChoice choice() const {
        ProductChoice made(product(), are_neighbours_ ? along_ : 1);
        if (is_apart_) made.cycles *= kLongerApart;
        for (const auto* copy : {&in, &out}) {
            if (*copy) made.cycles += (*copy)->cycles();
        }
        return made;
    }

    std::optional<VolumeCopy> in = {};
    std::optional<VolumeCopy> out = {};
    std::int64_t in_elements = 0;
    std::int64_t out_elements = 0;

private:
    void copy_out() {
        VolumeCopy::Ends ends{.what = written_, .from = dst_, .to = it_.to};
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            ends.parts[i].count = it_.shape.axes[i].results;
            if (i >= first_joined()) ends.from.axes[i] *= it_.shape.axes[i].step;
        }
        out_elements = written_.elements();
        out.emplace(it_.dtype, ends);
    }

    void write() {
        const VolumeShape& shape = it_.shape;
        const std::int64_t C = shape.group_C(), K = shape.group_K(), taps = shape.taps();
        statement_.add("g", shape.groups, {dst_.group, src_.group, K * C * taps, K});
        statement_.add("k", K, {dst_.channel, 0, C * taps, 1});
        const bool joins_images = form_.joined == kVolumeAxes && form_.copies;
        if (!joins_images) statement_.add("n", shape.N, {dst_.image, src_.image, 0});
        std::size_t i = 0;
        for (; i < first_joined(); ++i) {
            const VolumeAxis& axis = shape.axes[i];
            const std::int64_t step = axis.step * src_.axes[i];
            statement_.add(name_of_pixel(i), axis.results, {dst_.axes[i], step, 0});
        }
        along_ = 1 + (joins_images ? (shape.N - 1) * read_.pixels() : 0);
        std::int64_t pixels = 1;
        for (std::size_t axis = kVolumeAxes; axis-- > i; pixels *= read_.extents[axis]) {
            const std::int64_t step = form_.joined > 1 ? shape.axes[axis].step : 1;
            along_ += (shape.axes[axis].results - 1) * step * pixels;
        }
        const std::int64_t step = form_.joined > 1 ? 1 : shape.axes[i].step;
        is_apart_ = step > 1 && along_ > 1;
        statement_.add(name_of_pixel(i), along_, {dst_.axes[2], step * src_.axes[2], 0});
        are_neighbours_ = step * src_.axes[2] == 1;
        statement_.add("c", C, {0, src_.channel, taps});
        std::int64_t tap = taps, first = 0;
        for (std::size_t axis = 0; axis < kVolumeAxes; ++axis) {
            const VolumeAxis& it = shape.axes[axis];
            tap /= it.taps;
            statement_.add(name_of_tap(axis), it.taps, {0, it.spread * src_.axes[axis], tap});
            if (!form_.copies) first -= it.before * src_.axes[axis];
        }
        statement_.begin({.a = first});
    }

    std::size_t first_joined() const { return kVolumeAxes - form_.joined; }

    const Correlation& it_;
    CorrelationForm form_;
    VolumeArray read_;
    VolumeArray written_;
    VolumeStrides src_ = {};
    VolumeStrides dst_ = {};
    PixelStatement statement_;
    std::int64_t along_ = 1;
    bool are_neighbours_ = true;  // what is read along that
    bool is_apart_ = false;       // by a stride
};

std::vector<CorrelationForm> correlation_forms(const VolumeShape& shape) {
    const bool inside = std::all_of(shape.axes.begin(), shape.axes.end(),
                                    [](const VolumeAxis& it) { return it.is_inside(); });
    std::vector<CorrelationForm> forms;
    if (shape.taps() == 1 && shape.results() == shape.elements() && inside) {
        return {{.joined = kVolumeAxes}};  // all pixels are one index as they lie
    }
    const auto add = [&](bool copies, VolumeOrder order) {
        for (std::size_t joined = 1; joined <= kVolumeAxes; ++joined) {
            forms.push_back({copies, joined, order});
        }
    };
    if (inside) add(false, VolumeOrder::plain);
    add(true, VolumeOrder::planes);
    // Rows of single channels go along pixels.
    if (shape.group_C() * shape.group_K() > 1) add(true, VolumeOrder::last);
    return forms;
}

}  // namespace

struct CorrelationRun::Made {
    Made(const FormedCorrelation& it, const ProductChoice& choice, std::int64_t element)
        : cycles(choice.cycles),
          product(choice.made(it.product())),
          in(it.in),
          out(it.out),
          in_bytes(aligned(it.in_elements * element)),
          out_bytes(aligned(it.out_elements * element)) {}

    double cycles;
    ProductRun product;
    std::optional<VolumeCopy> in;
    std::optional<VolumeCopy> out;
    std::int64_t in_bytes;
    std::int64_t out_bytes;
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();
};

CorrelationRun::CorrelationRun(const Correlation& it) {
    std::optional<FormedCorrelation> best;
    ProductChoice chosen;
    for (const CorrelationForm& form : correlation_forms(it.shape)) {
        FormedCorrelation made(it, form);
        const ProductChoice choice = made.choice();
        if (choice.cycles >= chosen.cycles) continue;
        chosen = choice;
        best.emplace(std::move(made));
    }
    made_ = std::make_unique<const Made>(best.value(), chosen, size_of(it.dtype));
}

CorrelationRun::~CorrelationRun() = default;

double CorrelationRun::cycles() const { return made_->cycles; }

std::int64_t CorrelationRun::scratch_bytes() const { return made_->in_bytes + made_->out_bytes; }

void CorrelationRun::run(const char* src, const void* weights, const float* bias, char* dst) const {
    const WorkspacePool::Lease scratch(*made_->workspaces, scratch_bytes());
    char* const read = scratch.data();
    char* const written = read + made_->in_bytes;
    if (made_->in) made_->in->run(src, read);
    const std::array<const void*, 3> operands = {made_->in ? read : src, weights, bias};
    made_->product.run(operands, made_->out ? written : dst);
    if (made_->out) made_->out->run(written, dst);
}

}  // namespace dlprim
