// Convolutions along three axes on plain arrays, which the caller made or checked.
#include "primitives/volumes/volume_conv.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <pybind11/stl.h>

#include "bindings/arrays/call.h"
#include "bindings/primitives/primitive.h"
#include "bindings/register.h"
#include "primitives/nest/scheduled_pass.h"

namespace dlprim::bindings {
namespace {

class PyVolumeConv {
public:
    explicit PyVolumeConv(const VolumeConvSpec& spec)
        : core_(spec),
          src_(volumes(spec.shape.N, spec.shape.C, &VolumeAxis::extent)),
          dst_(volumes(spec.shape.N, spec.shape.K, &VolumeAxis::results)),
          weights_(volumes(spec.shape.K, spec.shape.group_C(), &VolumeAxis::taps)),
          bias_{spec.shape.K} {}

    bool is_faster(const std::string& which) const {
        return core_.is_faster(parse_pass(kPassKinds, which));
    }

    void forward(py::handle x, py::handle w, py::handle bias, py::handle y) const {
        Call call;
        const Memory src = call.operand("x", x, like(src_));
        const Memory weights = call.operand("w", w, like(weights_));
        const Memory added = call.optional("bias", bias, {DType::f32, bias_});
        const Memory dst = call.result("out", y, like(dst_)).data;
        call.run([&] { core_.forward(src, weights, added, dst); }, flops_);
    }

    void backward_data(py::handle dy, py::handle w, py::handle dx) const {
        Call call;
        const Memory diff_dst = call.operand("dy", dy, like(dst_));
        const Memory weights = call.operand("w", w, like(weights_));
        const Memory diff_src = call.result("out", dx, like(src_)).data;
        call.run([&] { core_.backward_data(diff_dst, weights, diff_src); }, flops_);
    }

    // (dw, db)
    py::tuple backward_weights(py::handle dy, py::handle x) const {
        Call call;
        VolumeGradients tensors{.diff_dst = call.operand("dy", dy, like(dst_)),
                                .src = call.operand("x", x, like(src_))};
        const Written dw = call.result("dw", py::none(), like(weights_), x);
        const Written db = call.result("db", py::none(), {DType::f32, bias_});
        tensors.diff_weights = dw.data;
        tensors.diff_bias = db.data;
        call.run([&] { core_.backward_weights(tensors); }, flops_);
        return py::make_tuple(dw.array, db.array);
    }

private:
    Shape volumes(std::int64_t first, std::int64_t second,
                  std::int64_t VolumeAxis::* extent) const {
        Shape shape{first, second};
        for (const VolumeAxis& axis : core_.spec().shape.axes) shape.push_back(axis.*extent);
        return shape;
    }
    Expected like(const Shape& shape) const { return {core_.spec().dtype, shape}; }

    VolumeConv core_;
    Shape src_;
    Shape dst_;
    Shape weights_;
    Shape bias_;
    double flops_ = core_.spec().shape.flops();
};

// The fields of VolumeShape and of VolumeAxis in their order.
std::unique_ptr<PyVolumeConv> volume_conv(const std::array<std::int64_t, 4>& channels,
                                          const std::array<std::array<std::int64_t, 6>, 3>& axes,
                                          const std::string& dtype, bool bias) {
    VolumeShape shape{channels[0], channels[1], channels[2], channels[3]};
    for (std::size_t i = 0; i < kVolumeAxes; ++i) {
        const auto& it = axes[i];
        shape.axes[i] = {it[0], it[1], it[2], it[3], it[4], it[5]};
    }
    return std::make_unique<PyVolumeConv>(
        VolumeConvSpec{.shape = shape, .dtype = parse_dtype(dtype), .bias = bias});
}

}  // namespace

void register_volume_conv(py::module_& module) {
    py::class_<PyVolumeConv>(module, "VolumeConv")
        .def(py::init(&volume_conv))
        .def("is_faster", &PyVolumeConv::is_faster)
        .def("forward", &PyVolumeConv::forward)
        .def("backward_data", &PyVolumeConv::backward_data)
        .def("backward_weights", &PyVolumeConv::backward_weights);
}

}  // namespace dlprim::bindings
