#include <cstdint>
#include <string>

#include "bindings/arrays/call.h"
#include "bindings/register.h"
#include "primitives/tensor/pack.h"

namespace dlprim::bindings {
namespace {

DType type_of(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::s8}) {
        if (name == name_of(dtype)) return dtype;
    }
    throw py::type_error("B cannot be packed from or to dtype " + name);
}

Shape shape_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

// b (batch, k, n), or (batch, n, k) where transposed, into packed (batch, ceil(k / g), n, g), whose
// first axis may be several.
void pack_matrices(const py::array& b, const std::string& from, const py::array& packed,
                   const std::string& to, bool transposed) {
    Packing packing{.from = type_of(from), .to = type_of(to), .transposed = transposed};
    const Shape shape = shape_of(b), packed_shape = shape_of(packed);
    Call call;
    packing.src = call.operand("b", b, Expected{packing.from, shape});
    packing.dst = call.result("packed", packed, Expected{packing.to, packed_shape}).data;
    if (shape.size() != 3) throw py::value_error("b is not of three dimensions");
    packing.batch = shape[0];
    packing.k = shape[transposed ? 2 : 1];
    packing.n = shape[transposed ? 1 : 2];
    packing.ld_src = shape[2];
    packing.ld_dst = packing.n;
    const std::int64_t group = elements_per_word(packing.to);
    const std::int64_t packed_k = (packing.k + group - 1) / group * group;
    packing.stride_src = packing.k * packing.n * size_of(packing.from);
    packing.stride_dst = packed_k * packing.n * size_of(packing.to);
    if (elements_of(packed_shape) != packing.batch * packed_k * packing.n) {
        throw py::value_error("packed holds " + std::to_string(elements_of(packed_shape)) +
                              " elements, expected " +
                              std::to_string(packing.batch * packed_k * packing.n));
    }
    call.run([&] { pack_b(packing); });
}

void round(const py::array& src, const py::array& dst) {
    const Shape shape = shape_of(src);
    Call call;
    const char* const from = call.operand("src", src, Expected{DType::f32, shape});
    char* const to = call.result("dst", dst, Expected{DType::bf16, shape}).data;
    call.run([&] {
        round_to_bf16(reinterpret_cast<const float*>(from), reinterpret_cast<std::uint16_t*>(to),
                      elements_of(shape));
    });
}

void widen(const py::array& src, const py::array& dst) {
    const Shape shape = shape_of(src);
    Call call;
    const char* const from = call.operand("src", src, Expected{DType::bf16, shape});
    float* const to = call.result("dst", dst, Expected{DType::f32, shape}).floats();
    call.run([&] {
        widen_to_f32(reinterpret_cast<const std::uint16_t*>(from), to, elements_of(shape));
    });
}

py::object aligned(const py::sequence& shape, const py::object& dtype, bool zeros) {
    const Shape extents = shape_from(shape);
    return new_array({.shape = extents, .ragged = zeros}, py::dtype::from_args(dtype));
}

}  // namespace

void register_arrays(py::module_& module) {
    module.def("pack_b", pack_matrices, py::arg("b"), py::arg("from_dtype"), py::arg("packed"),
               py::arg("to_dtype"), py::arg("transposed"));
    module.def("round_to_bfloat16", round, py::arg("src"), py::arg("dst"));
    module.def("widen_to_float32", widen, py::arg("src"), py::arg("dst"));
    module.def("aligned", aligned, py::arg("shape"), py::arg("dtype"), py::arg("zeros"));
    module.def("bfloat16_dtype", bfloat16_dtype);
    module.def("set_packed_type", set_packed_type, py::arg("type"));
}

}  // namespace dlprim::bindings
