#include <cstdint>
#include <optional>
#include <string>

#include <pybind11/stl.h>

#include "bindings/arrays/call.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"
#include "primitives/reorder/pack.h"
#include "primitives/reorder/reorder.h"

namespace dlprim::bindings {
namespace {

Shape shape_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

// b (batch, k, n), or (batch, n, k) where transposed, into packed (batch, ceil(k / g), n, g), whose
// first axis may be several. Python's function has made or checked the latter's shape.
void pack_matrices(const py::array& b, const std::string& from, const py::array& packed,
                   const std::string& to, bool transposed) {
    const Shape shape = shape_of(b), packed_shape = shape_of(packed);
    const DType source = parse_dtype(from), target = parse_dtype(to);
    const std::int64_t group = elements_per_word(target);
    const std::int64_t k = shape.at(transposed ? 2 : 1), n = shape.at(transposed ? 1 : 2);
    Call call;
    const Memory src = call.operand("b", b, {source, shape});
    const Packing packing{
        .from = source,
        .to = target,
        .k = k,
        .n = n,
        .transposed = transposed,
        .src = src,
        .ld_src = shape[2],
        .dst = call.result("packed", packed, {target, packed_shape}).data,
        .ld_dst = n,
        .batch = shape[0],
        .stride_src = k * n * size_of(source),
        .stride_dst = (k + group - 1) / group * group * n * size_of(target),
    };
    call.run([&] { pack_b(packing); });
}

void round(const py::array& src, const py::array& dst) {
    const Shape shape = shape_of(src);
    Call call;
    const Memory from = call.operand("src", src, {DType::f32, shape});
    const Memory to = call.result("dst", dst, {DType::bf16, shape}).data;
    call.run([&] { round_to_bf16(from, to, elements_of(shape)); });
}

void widen(const py::array& src, const py::array& dst) {
    const Shape shape = shape_of(src);
    Call call;
    const Memory from = call.operand("src", src, {DType::bf16, shape});
    const Memory to = call.result("dst", dst, {DType::f32, shape}).data;
    call.run([&] { widen_to_f32(from, to, elements_of(shape)); });
}

py::object aligned(const Shape& shape, const py::object& dtype, bool zeros) {
    return new_array({.shape = shape, .ragged = zeros}, py::dtype::from_args(dtype));
}

// A C-contiguous copy of a matrix of float32 or bfloat16 whose strides point upwards, by all
// threads; None for anything else.
py::object contiguous(const py::array& array) {
    const std::optional<DType> dtype = float_type_of(array);
    if (!dtype || array.ndim() != 2) return py::none();
    const std::int64_t element = size_of(*dtype);
    Layout from = plain_layout(*dtype, {{'r', array.shape(0)}, {'c', array.shape(1)}});
    const Layout to = from;
    for (int axis = 0; axis < 2; ++axis) {
        const std::int64_t stride = array.strides(axis);
        if (stride <= 0 || stride % element != 0) return py::none();
        from.dimensions[static_cast<std::size_t>(axis)].levels = {
            {array.shape(axis), stride / element}};
    }
    const Shape shape = shape_of(array);
    py::object made = new_array({*dtype, shape}, array.dtype());
    void* const dst = py::reinterpret_borrow<py::array>(made).mutable_data();
    const void* const src = array.data();
    const WithoutGil without_gil;
    reorder(from, src, to, dst);
    return made;
}

}  // namespace

void register_arrays(py::module_& module) {
    module.def("pack_b", pack_matrices, py::arg("b"), py::arg("from_dtype"), py::arg("packed"),
               py::arg("to_dtype"), py::arg("transposed"));
    module.def("round_to_bfloat16", round, py::arg("src"), py::arg("dst"));
    module.def("widen_to_float32", widen, py::arg("src"), py::arg("dst"));
    module.def("aligned", aligned, py::arg("shape"), py::arg("dtype"), py::arg("zeros"));
    module.def("contiguous", contiguous, py::arg("array"));
    module.def("bfloat16_dtype", bfloat16_dtype);
    module.def("set_packed_type", set_packed_type, py::arg("type"));
}

}  // namespace dlprim::bindings
