#include <cstdint>
#include <stdexcept>
#include <string>

#include "bindings/array.h"
#include "bindings/register.h"
#include "primitives/tensor/pack.h"

namespace dlprim::bindings {
namespace {

DType packed_type(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::s8}) {
        if (name == name_of(dtype)) return dtype;
    }
    throw py::type_error("B cannot be packed from or to dtype " + name);
}

// Python's functional layer has checked shapes, strides and overlap; these are the invariants.
void require_contiguous(const ArrayView& view, std::int64_t elements) {
    if (!view.is_c_contiguous() || view.array().size() != elements) {
        throw py::value_error(view.description() + ", expected " + std::to_string(elements) +
                              " contiguous elements");
    }
}

// b (batch, k, n), or (batch, n, k) where transposed, into packed (batch, ceil(k / g), n, g).
void pack(const py::array& b, const std::string& from, const py::array& packed,
          const std::string& to, bool transposed) {
    const ArrayView src("b", b, packed_type(from));
    const ArrayView dst("packed", packed, packed_type(to));
    if (src.ndim() != 3) throw py::value_error(src.description() + ", expected three dimensions");
    Packing packing{.from = packed_type(from),
                    .to = packed_type(to),
                    .k = src.shape(transposed ? 2 : 1),
                    .n = src.shape(transposed ? 1 : 2),
                    .transposed = transposed,
                    .src = src.data(),
                    .ld_src = src.shape(2),
                    .dst = dst.data(),
                    .batch = src.shape(0)};
    const std::int64_t group = elements_per_word(packing.to);
    const std::int64_t packed_k = (packing.k + group - 1) / group * group;
    packing.ld_dst = packing.n;
    packing.stride_src = packing.k * packing.n * size_of(packing.from);
    packing.stride_dst = packed_k * packing.n * size_of(packing.to);
    require_contiguous(src, packing.batch * packing.k * packing.n);
    require_contiguous(dst, packing.batch * packed_k * packing.n);
    dst.require_writeable();
    const py::gil_scoped_release without_gil;
    pack_b(packing);
}

void round(const py::array& src, const py::array& dst) {
    const ArrayView values("src", src, DType::f32);
    const ArrayView result("dst", dst, DType::bf16);
    const std::int64_t count = values.array().size();
    require_contiguous(values, count);
    require_contiguous(result, count);
    result.require_writeable();
    const py::gil_scoped_release without_gil;
    round_to_bf16(reinterpret_cast<const float*>(values.data()),
                  reinterpret_cast<std::uint16_t*>(result.data()), count);
}

void widen(const py::array& src, const py::array& dst) {
    const ArrayView values("src", src, DType::bf16);
    const ArrayView result("dst", dst, DType::f32);
    const std::int64_t count = values.array().size();
    require_contiguous(values, count);
    require_contiguous(result, count);
    result.require_writeable();
    const py::gil_scoped_release without_gil;
    widen_to_f32(reinterpret_cast<const std::uint16_t*>(values.data()),
                 reinterpret_cast<float*>(result.data()), count);
}

}  // namespace

void register_pack(py::module_& module) {
    module.def("pack_b", pack, py::arg("b"), py::arg("from_dtype"), py::arg("packed"),
               py::arg("to_dtype"), py::arg("transposed"));
    module.def("round_to_bfloat16", round, py::arg("src"), py::arg("dst"));
    module.def("widen_to_float32", widen, py::arg("src"), py::arg("dst"));
}

}  // namespace dlprim::bindings
