#include <cstdint>
#include <string>

#include "bindings/activations.h"
#include "bindings/register.h"
#include "primitives/layers/pooling.h"

namespace dlprim::bindings {
namespace {

PoolingKind parse_kind(const std::string& name) {
    if (name == "max") return PoolingKind::max;
    return name == "average" ? PoolingKind::average : PoolingKind::average_padded;
}

class PyPooling {
public:
    // `window`: kernel, stride and padding, each (height, width).
    PyPooling(const PyActivations& src, const std::string& kind, const Shape& window)
        : src_(src),
          pooling_{.src = src.tensor(),
                   .layout = src.layout(),
                   .kind = parse_kind(kind),
                   .R = window.at(0),
                   .S = window.at(1),
                   .stride_h = window.at(2),
                   .stride_w = window.at(3),
                   .pad_h = window.at(4),
                   .pad_w = window.at(5)},
          dst_shape_(src.packed_shape()) {
        validate(pooling_);
        const std::size_t first = src.layout() == Format::nhwc ? 1 : 2;
        dst_shape_[first] = pooling_.P();
        dst_shape_[first + 1] = pooling_.Q();
    }

    void forward(py::handle src, py::handle out, py::handle indices) const {
        const Maybe from = Operand("src", src, src_.dtype(), src_.packed_shape());
        const Maybe to = maybe("out", out, src_.dtype(), dst_shape_);
        const Maybe taps = maybe("indices", indices, DType::u8, dst_shape_);
        char* const dst = to.value().writeable({&from});
        std::uint8_t* const where =
            taps ? reinterpret_cast<std::uint8_t*>(taps->writeable({&from, &to})) : nullptr;
        const py::gil_scoped_release without_gil;
        pool_forward(pooling_, from.value().data(), dst, where);
    }

    void backward(py::handle diff_dst, py::handle indices, py::handle out) const {
        const Maybe from = Operand("diff_dst", diff_dst, src_.dtype(), dst_shape_);
        const Maybe taps = maybe("indices", indices, DType::u8, dst_shape_);
        const Maybe to = src_.packed("out", out);
        if (taps.has_value() != (pooling_.kind == PoolingKind::max)) {
            throw py::value_error("indices are expected of maximum pooling, and of no other");
        }
        char* const diff_src = to.value().writeable({&from, &taps});
        const py::gil_scoped_release without_gil;
        pool_backward(pooling_, from.value().data(), bits_or_null(taps), diff_src);
    }

    const Shape& dst_shape() const { return dst_shape_; }

private:
    PyActivations src_;
    Pooling pooling_;
    Shape dst_shape_;
};

}  // namespace

void register_pooling(py::module_& module) {
    py::class_<PyPooling>(module, "Pooling")
        .def(py::init<const PyActivations&, const std::string&, const Shape&>(), py::arg("src"),
             py::arg("kind"), py::arg("window"))
        .def("forward", &PyPooling::forward, py::arg("src"), py::arg("out"), py::arg("indices"))
        .def("backward", &PyPooling::backward, py::arg("diff_dst"), py::arg("indices"),
             py::arg("out"))
        .def_property_readonly("dst_shape",
                               [](const PyPooling& it) { return tuple_of(it.dst_shape()); });
}

}  // namespace dlprim::bindings
