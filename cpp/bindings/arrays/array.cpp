#include "bindings/arrays/array.h"

#include <algorithm>
#include <array>
#include <map>

namespace dlprim::bindings {
namespace {

[[noreturn]] void refuse_type(const std::string& sentence) { throw py::type_error(sentence); }
[[noreturn]] void refuse_value(const std::string& sentence) { throw py::value_error(sentence); }

std::string type_name(py::handle object) {
    return py::str(py::type::handle_of(object).attr("__name__"));
}

// How an array of another dtype becomes one of float32; empty where float32 is not expected, or the
// array holds no numbers. uint16 is as likely numbers as bits.
std::string conversion(const py::array& array, DType expected) {
    if (expected != DType::f32) return "";
    const py::dtype given = array.dtype();
    if (given.kind() == 'u' && given.itemsize() == 2) {
        return ": convert numbers with .astype(np.float32), and view the bits of bfloat16 values "
               "with .view(ml_dtypes.bfloat16)";
    }
    const bool is_number = std::string("fiu").find(given.kind()) != std::string::npos;
    return is_number ? ": convert it with .astype(np.float32)" : "";
}

// PyTorch has views whose elements are minus, or the conjugates of, what lies in memory. DLPack
// does not say so, and a copy that resolves it would not be written to.
void refuse_unresolved(const std::string& name, py::handle object) {
    for (const std::string bit : {"neg", "conj"}) {
        const auto asks = py::getattr(object, ("is_" + bit).c_str(), py::none());
        if (PyCallable_Check(asks.ptr()) == 0 || !py::bool_(asks())) continue;
        refuse_type(name + " of type " + type_name(object) + " has its " + bit +
                    " bit set, which says that its elements are others than those in memory; "
                    "expected what its resolve_" +
                    bit + "() returns");
    }
}

py::array as_array(const char* name, py::handle object, DType dtype) {
    PyTypeObject* const plain = py::detail::npy_api::get().PyArray_Type_;
    if (Py_TYPE(object.ptr()) == plain) return py::reinterpret_borrow<py::array>(object);
    if (is_masked(object)) {
        refuse_type(std::string(name) +
                    " is a masked array, expected an ndarray: masked elements have no value here; "
                    "fill them with " +
                    name + ".filled(...)");
    }
    if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object);
    if (!py::hasattr(object, "__dlpack__")) {
        refuse_type(std::string(name) + " is of type " + type_name(object) +
                    ", expected a NumPy array of " + std::string(dlprim::name_of(dtype)) +
                    " or an object with __dlpack__");
    }
    refuse_unresolved(name, object);
    try {
        return py::module_::import("numpy").attr("from_dlpack")(object);
    } catch (const py::error_already_set& error) {
        refuse_type(std::string(name) + " of type " + type_name(object) +
                    " cannot be viewed as a NumPy array (detach it and move it to the CPU "
                    "first): " +
                    std::string(py::str(error.value())));
    }
}

// ml_dtypes' dtype, which has no C++ type. In native byte order it is usually one object, so after
// the first look at its name the pointer tells.
bool is_bfloat16(const py::dtype& dtype) {
    static PyObject* known = nullptr;  // guarded by the GIL
    if (dtype.ptr() == known) return true;
    if (dtype.itemsize() != 2 || dtype.attr("name").cast<std::string>() != "bfloat16") return false;
    if (!dtype.attr("isnative").cast<bool>()) return false;
    if (known == nullptr) known = dtype.inc_ref().ptr();
    return true;
}

// In native byte order a dtype is usually one object.
py::handle usual_dtype(DType dtype) {
    static const std::array<PyObject*, 6> usual = [] {
        std::array<PyObject*, 6> made = {};
        for (const DType each : {DType::f32, DType::bf16, DType::s32, DType::s8, DType::u8}) {
            made.at(static_cast<std::size_t>(each)) = numpy_dtype(each).release().ptr();
        }
        return made;
    }();
    return usual.at(static_cast<std::size_t>(dtype));
}

bool is_of(const py::array& array, DType dtype) {
    const py::handle expected = usual_dtype(dtype);
    const py::handle actual =
        reinterpret_cast<const py::detail::PyArray_Proxy*>(array.ptr())->descr;
    if (actual.is(expected)) return true;
    if (dtype == DType::bf16 && is_bfloat16(array.dtype())) return true;
    return actual.equal(expected);
}

}  // namespace

bool is_masked(py::handle object) {
    // Most arguments are plain ndarrays, or None.
    PyTypeObject* const type = Py_TYPE(object.ptr());
    if (type == py::detail::npy_api::get().PyArray_Type_ || object.is_none()) return false;
    if (!py::isinstance<py::array>(object)) return false;
    // None is masked before somebody imports them, which takes 30 ms.
    static PyObject* masked = nullptr;  // guarded by the GIL
    if (masked == nullptr) {
        const py::str name("numpy.ma.core");
        const auto core = py::reinterpret_steal<py::object>(PyImport_GetModule(name.ptr()));
        if (!core) {
            if (PyErr_Occurred() != nullptr) throw py::error_already_set();
            return false;
        }
        py::object found = py::getattr(core, "MaskedArray", py::none());
        if (found.is_none()) return false;
        masked = found.release().ptr();
    }
    return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(masked)) != 0;
}

py::dtype numpy_dtype(DType dtype) {
    switch (dtype) {
        case DType::f32: return py::dtype::of<float>();
        case DType::bf16: return py::dtype::of<std::uint16_t>();
        case DType::s32: return py::dtype::of<std::int32_t>();
        case DType::s8: return py::dtype::of<std::int8_t>();
        case DType::u8: return py::dtype::of<std::uint8_t>();
        case DType::s16: return py::dtype::of<std::int16_t>();
        case DType::f16: return py::dtype("float16");
    }
    return py::dtype::of<float>();
}

DType parse_dtype(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::s32, DType::s8, DType::u8}) {
        if (name == name_of(dtype)) return dtype;
    }
    refuse_type("no kernel computes with dtype " + name);
}

bool is_bfloat16_array(py::handle object) {
    return py::isinstance<py::array>(object) &&
           is_bfloat16(py::reinterpret_borrow<py::array>(object).dtype());
}

ArrayView::ArrayView(const char* name, py::handle object, DType dtype, bool anywhere)
    : name_(name), array_(as_array(name, object, dtype)), element_(size_of(dtype)) {
    if (!is_of(array_, dtype)) {
        refuse_type(std::string(name) + " has dtype " + std::string(py::str(array_.dtype())) +
                    ", expected " + std::string(name_of(dtype)) + conversion(array_, dtype));
    }
    // Elements are of one, two or four bytes.
    const std::int64_t within = element_ - 1;
    std::int64_t misaligned =
        anywhere ? 0 : reinterpret_cast<std::intptr_t>(array_.data()) & within;
    for (int axis = 0; axis < ndim(); ++axis) {
        const std::int64_t reach = (shape(axis) - 1) * stride(axis);
        (reach < 0 ? low_ : high_) += reach;
        misaligned |= shape(axis) > 1 ? stride(axis) & within : 0;
    }
    high_ = array_.size() == 0 ? low_ : high_ + element_;
    if (misaligned != 0 && array_.size() > 0) {
        refuse_value(description() + ", whose elements are not aligned to " +
                     std::to_string(element_) + " bytes");
    }
}

std::string ArrayView::description() const {
    return std::string(name_) + " has shape " + std::string(py::str(array_.attr("shape"))) +
           " and strides " + std::string(py::str(array_.attr("strides")));
}

void ArrayView::require_writeable() const {
    if (!array_.writeable())
        refuse_value(std::string(name_) + " is read-only, expected a writeable array");
}

void ArrayView::require_vector(std::int64_t length) const {
    if (ndim() != 1 || shape(0) != length || !is_c_contiguous()) {
        refuse_value(description() + ", expected a contiguous vector of shape (" +
                     std::to_string(length) + ",)");
    }
}

void ArrayView::require_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld,
                               std::int64_t group) const {
    const bool packed = group > 1;
    const int across = ndim() - (packed ? 2 : 1);  // the axis of columns
    const bool empty = array_.size() == 0;         // NumPy gives an empty array any strides
    const std::int64_t step = group * element_;
    const bool fits = across >= 1 && shape(across - 1) == rows &&
                      (shape(across) == columns || shape(across) == ld) &&
                      (!packed || shape(across + 1) == group) &&
                      (empty || !packed || stride(across + 1) == element_) &&
                      (empty || shape(across) == 1 || stride(across) == step) &&
                      (empty || rows == 1 || stride(across - 1) == ld * step);
    if (fits) return;
    const std::string extents = std::to_string(rows) + ", " + std::to_string(columns);
    const std::string apart = "ld=" + std::to_string(ld);
    refuse_value(description() + ", expected " +
                 (packed ? "packed matrices of shape (" + extents + ", " + std::to_string(group) +
                               ") as dlprim.pack_b makes them, with rows " + apart + " groups apart"
                         : "matrices of shape (" + extents + ") with contiguous rows that are " +
                               apart + " elements (" + std::to_string(ld * element_) +
                               " bytes) apart"));
}

void ArrayView::require_one_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld) const {
    if (ndim() != 2) refuse_value(description() + ", expected two dimensions");
    require_matrix(rows, columns, ld);
}

void ArrayView::require_inside(std::int64_t offset, std::int64_t span) const {
    if (offset % element_ != 0) {
        refuse_value("a matrix of " + std::string(name_) + " begins at byte " +
                     std::to_string(offset) + ", expected a multiple of " +
                     std::to_string(element_));
    }
    if (offset < low_ || offset > high_ || span > high_ - offset) {
        refuse_value("a matrix of " + std::string(name_) + " occupies " + std::to_string(span) +
                     " bytes from byte " + std::to_string(offset) + ", outside the " +
                     std::to_string(high_ - low_) + " bytes of the array: " + description());
    }
}

void ArrayView::require_apart(const ArrayView& operand, bool reads_between) const {
    const char* const begin = data() + low_;
    const char* const end = data() + high_;
    if (operand.data() + operand.high_ <= begin || end <= operand.data() + operand.low_) return;
    const py::object shares = py::module_::import("numpy").attr("shares_memory");
    if (reads_between || shares(array_, operand.array_).cast<bool>()) {
        refuse_value(std::string(name_) + " shares memory with " + operand.name_ +
                     ", expected a result that overlaps no operand");
    }
}

std::int64_t integer_or(const char* name, py::handle object, std::int64_t fallback) {
    if (object.is_none()) return fallback;
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
    if (!index) {
        PyErr_Clear();
        refuse_type(std::string(name) + " is of type " + type_name(object) +
                    ", expected an integer");
    }
    const std::int64_t value = PyLong_AsLongLong(index.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        refuse_value(std::string(name) + " does not fit in 64 bits");
    }
    return value;
}

std::string numpy_name(const py::dtype& dtype) {
    constexpr std::size_t kKnown = 32;
    static std::map<PyObject*, std::string> known;
    const auto found = known.find(dtype.ptr());
    if (found != known.end()) return found->second;
    const std::string name = py::str(dtype.attr("name"));
    if (known.size() < kKnown) known.emplace(dtype.inc_ref().ptr(), name);
    return name;
}

}  // namespace dlprim::bindings
