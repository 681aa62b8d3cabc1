#include "bindings/arrays/form.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <structmember.h>

#include "primitives/tensor/buffer.h"

namespace dlprim::bindings {
namespace {

constexpr std::int64_t kCacheLine = 64;

// Of the package; lives as long as the process.
PyTypeObject* packed_type = nullptr;
Py_ssize_t form_offset = 0;  // of its slot that names the form

// The result of one primitive is an operand of the next, so indices of activations have one name
// each whatever their role; and groups of whole blocks are blocks as any.
char letter_in_name(const LayoutDimension& dimension, const Layout& layout) {
    if (layout.has('k') && layout.has('c')) return dimension.letter;  // weights
    switch (dimension.letter) {
        case 'k': return 'c';
        case 'p': return 'h';
        case 'q': return 'w';
        case 'g': break;
        default: return dimension.letter;
    }
    const LayoutDimension& channels = layout.dimension(layout.has('c') ? 'c' : 'k');
    return channels.padded() == channels.extent ? 'c' : 'g';
}

// Nothing but the order of storage: "[n2 c3 h7 w7 c16] of (2, 40, 7, 7)".
std::string description(const TensorForm& tensor) {
    struct Level {
        char letter;
        DimensionLevel level;
    };
    std::vector<Level> levels;
    for (const LayoutDimension& dimension : tensor.packed.dimensions) {
        for (const DimensionLevel& level : dimension.levels) {
            if (level.extent == 1) continue;
            levels.push_back({letter_in_name(dimension, tensor.packed), level});
        }
    }
    std::stable_sort(levels.begin(), levels.end(), [](const Level& one, const Level& other) {
        return one.level.stride > other.level.stride;
    });
    std::string text;
    for (std::size_t i = 0; i < levels.size(); ++i) {
        std::int64_t extent = levels[i].level.extent;
        // Levels of one index that follow without a gap are one.
        while (i + 1 < levels.size() && levels[i + 1].letter == levels[i].letter &&
               levels[i].level.stride == levels[i + 1].level.extent * levels[i + 1].level.stride) {
            extent *= levels[++i].level.extent;
        }
        text +=
            (text.empty() ? "" : " ") + std::string(1, levels[i].letter) + std::to_string(extent);
    }
    return "[" + text + "] of " + std::string(py::str(tuple_of(tensor.plain_shape)));
}

bool is_blocked(const Layout& layout) {
    return std::any_of(layout.dimensions.begin(), layout.dimensions.end(),
                       [](const LayoutDimension& it) { return it.levels.size() > 1; });
}

py::array bytes_of(std::int64_t size, bool zeros) {
    if (!zeros) {  // not py::array_t, whose constructor allocates a shape and strides of its own
        static PyObject* element = nullptr;  // guarded by the GIL
        if (element == nullptr) element = py::dtype::of<std::uint8_t>().release().ptr();
        const py::detail::npy_api& numpy = py::detail::npy_api::get();
        const Py_intptr_t extent = size;
        Py_INCREF(element);  // which the array takes
        auto made = py::reinterpret_steal<py::array>(numpy.PyArray_NewFromDescr_(
            numpy.PyArray_Type_, element, 1, &extent, nullptr, nullptr, 0, nullptr));
        if (!made) throw py::error_already_set();
        return made;
    }
    static PyObject* make = nullptr;  // the same, which an import may let go of
    if (make == nullptr) {
        make = py::object(py::module_::import("numpy").attr("zeros")).release().ptr();
    }
    return py::handle(make)(size, py::dtype::of<std::uint8_t>());
}

// Null where nothing was ever said.
PyObject*& form_of_packed(py::handle array) {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(array.ptr()) + form_offset);
}

}  // namespace

py::tuple tuple_of(const Shape& shape) {
    py::tuple made(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) made[i] = shape[i];
    return made;
}

std::int64_t elements_of(const Shape& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

bool has_shape(py::handle array, const Shape& shape) {
    if (!py::isinstance<py::array>(array)) return false;
    const auto given = py::reinterpret_borrow<py::array>(array);
    return given.ndim() == static_cast<py::ssize_t>(shape.size()) &&
           std::equal(shape.begin(), shape.end(), given.shape());
}

Form::Form(TensorForm tensor)
    : tensor_(std::move(tensor)),
      ragged_(!plain_shape().empty() && elements_of(shape()) > elements_of(plain_shape())) {
    if (is_blocked(layout())) packed_as_ = py::str(description(tensor_));
}

Form::Form(const Form& of, std::int64_t elements, const std::string& packed_as)
    : tensor_{.name = of.name(),
              .plain = of.plain_layout(),
              .plain_shape = of.plain_shape(),
              .packed = of.layout(),
              .packed_shape = {elements}},
      packed_as_(py::str(packed_as)) {}

const Reorder& Form::packing(DType from) const {
    std::shared_ptr<const Reorder>& known = packing_[from];
    if (!known) {
        Layout plain = plain_layout();
        plain.dtype = from;
        known = std::make_shared<Reorder>(plain, layout());
    }
    return *known;
}

std::shared_ptr<const Reorder> Form::packing(DType from, const Shape& strides) const {
    const Shape& extents = plain_shape();
    Layout plain = plain_layout();
    plain.dtype = from;
    for (LayoutDimension& dimension : plain.dimensions) {
        for (DimensionLevel& level : dimension.levels) {
            // The axis that the level is part of: channels of a group, for example, are of all.
            std::int64_t dense = 1;
            for (std::size_t axis = extents.size(); axis-- > 0; dense *= extents[axis]) {
                if (level.extent == 1 || level.stride >= dense * extents[axis]) continue;
                level.stride = level.stride / dense * strides[axis];
                break;
            }
        }
    }
    Layout dense = plain_layout();
    dense.dtype = from;
    if (plain == dense) {
        packing(from);
        return packing_[from];
    }
    return std::make_shared<Reorder>(plain, layout());
}

const Reorder& Form::unpacking() const {
    if (!unpacking_) unpacking_ = std::make_shared<Reorder>(layout(), plain_layout());
    return *unpacking_;
}

Forms::Forms(std::vector<TensorForm> table) {
    forms_.reserve(table.size());
    for (TensorForm& each : table) forms_.emplace_back(std::move(each));
}

const Form& Forms::operator[](std::string_view name) const {
    for (const Form& form : forms_) {
        if (form.name() == name) return form;
    }
    throw py::key_error("there is no operand " + std::string(name));
}

const Form& Forms::matching(const std::string& name, py::handle array) const {
    const auto is_narrow = [&](const Form& form) { return form.name() == "narrow_" + name; };
    const auto narrow = std::find_if(forms_.begin(), forms_.end(), is_narrow);
    if (narrow == forms_.end() || !py::isinstance<py::array>(array)) return (*this)[name];
    const auto given = py::reinterpret_borrow<py::array>(array);
    return given.itemsize() == size_of(narrow->dtype()) ? *narrow : (*this)[name];
}

py::dict Forms::shapes(const Shape& (Form::*shape_of)() const) const {
    py::dict made;
    for (const Form& form : forms_) made[form.name().c_str()] = tuple_of((form.*shape_of)());
    return made;
}

void set_packed_type(py::object type) {
    const py::object slot = type.attr("__dict__")["_form"];
    form_offset = reinterpret_cast<PyMemberDescrObject*>(slot.ptr())->d_member->offset;
    packed_type = reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

py::object packed_as(py::handle array) {
    if (Py_TYPE(array.ptr()) != packed_type) return {};
    PyObject* const name = form_of_packed(array);
    return name == nullptr || name == Py_None ? py::object()
                                              : py::reinterpret_borrow<py::object>(name);
}

void set_packed_as(py::handle array, const py::object& name) {
    if (Py_TYPE(array.ptr()) != packed_type) return;
    PyObject*& form = form_of_packed(array);
    if (form == name.ptr()) return;
    Py_XDECREF(std::exchange(form, py::object(name).release().ptr()));
}

py::object packed_view(const py::object& array, const py::object& name) {
    if (packed_type == nullptr || Py_TYPE(array.ptr()) == packed_type) return array;
    py::object view = array.attr("view")(py::handle(reinterpret_cast<PyObject*>(packed_type)));
    set_packed_as(view, name);
    return view;
}

py::dtype bfloat16_dtype() {
    static PyObject* found = nullptr;  // guarded by the GIL, which an import may let go of
    if (found == nullptr) {
        py::dtype made = py::dtype::of<std::uint16_t>();
        try {
            made = py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16"));
        } catch (const py::error_already_set& error) {
            if (!error.matches(PyExc_ImportError)) throw;
        }
        if (found == nullptr) found = made.release().ptr();
    }
    return py::reinterpret_borrow<py::dtype>(found);
}

std::optional<DType> float_type_of(const py::array& array) {
    // In native byte order each is usually one object.
    static const PyObject* const usual = numpy_dtype(DType::f32).release().ptr();
    const auto* const found =
        reinterpret_cast<const py::detail::PyArray_Proxy*>(array.ptr())->descr;
    if (found == usual) return DType::f32;
    if (found == bfloat16_dtype().ptr()) return DType::bf16;
    const py::dtype dtype = array.dtype();
    const auto is = [&](const py::dtype& other) { return dtype.is(other) || dtype.equal(other); };
    if (is(numpy_dtype(DType::f32))) return DType::f32;
    if (is(numpy_dtype(DType::bf16)) || is(bfloat16_dtype())) return DType::bf16;
    return {};
}

py::dtype dtype_for(DType dtype, py::handle like) {
    if (dtype != DType::bf16) return numpy_dtype(dtype);
    if (like && py::isinstance<py::array>(like)) {
        const py::dtype given = py::reinterpret_borrow<py::array>(like).dtype();
        if (given.itemsize() == size_of(DType::bf16)) return given;
    }
    return bfloat16_dtype();
}

py::object new_array(const Expected& look, const py::dtype& dtype, ArrayPool* pool) {
    const std::int64_t size = elements_of(look.shape) * dtype.itemsize();
    if (pool == nullptr && size >= ArrayPool::kWorthPooling && !look.ragged) {
        pool = &ArrayPool::results();
    }
    const bool pooled = pool != nullptr && size > 0;
    py::array memory =
        pooled ? py::array(pool->empty(size)) : bytes_of(size + kCacheLine, look.ragged);
    auto* data = static_cast<char*>(memory.mutable_data());
    data += -reinterpret_cast<std::intptr_t>(data) & (kCacheLine - 1);
    const bool named = look.packed_as != nullptr && *look.packed_as && packed_type != nullptr;
    const py::detail::npy_api& numpy = py::detail::npy_api::get();
    auto made = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
        named ? packed_type : numpy.PyArray_Type_, py::dtype(dtype).release().ptr(),
        static_cast<int>(look.shape.size()), look.shape.data(), nullptr, data,
        py::detail::npy_api::NPY_ARRAY_WRITEABLE_, nullptr));
    if (!made) throw py::error_already_set();
    numpy.PyArray_SetBaseObject_(made.ptr(), memory.release().ptr());
    if (named) set_packed_as(made, *look.packed_as);
    return made;
}

}  // namespace dlprim::bindings
