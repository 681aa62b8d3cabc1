// The arrays that a primitive takes and gives, made from the table of its TensorForms: what each
// must look like, and the name of the form it is packed in. A packed array carries that name, in an
// attribute of the ndarray subclass `Packed`, so that one that was packed otherwise is refused
// though its shape may be the same. Views, arithmetic and plain ndarrays carry none and are taken
// at their shape's word.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/arrays/array.h"
#include "bindings/arrays/array_pool.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/layout.h"

namespace dlprim::bindings {

using Shape = std::vector<std::int64_t>;

py::tuple tuple_of(const Shape& shape);
std::int64_t elements_of(const Shape& shape);
bool has_shape(py::handle array, const Shape& shape);

// What an array must look like.
struct Expected {
    DType dtype = DType::f32;
    const Shape& shape;
    // The name of its form, which arrays without one may have as well; a null object for an array
    // that is not packed. Null where any will do.
    const py::object* packed_as = nullptr;
    bool ragged = false;  // holds more than its elements, so that a new one is to hold zeros
};

class Form {
public:
    explicit Form(TensorForm tensor);
    // An array of bytes that only those who know its form can use, named by `packed_as`.
    Form(const Form& of, std::int64_t elements, const std::string& packed_as);

    DType dtype() const { return tensor_.packed.dtype; }
    const std::string& name() const { return tensor_.name; }
    const Shape& shape() const { return tensor_.packed_shape; }
    const Shape& plain_shape() const { return tensor_.plain_shape; }
    const Layout& layout() const { return tensor_.packed; }
    const Layout& plain_layout() const { return tensor_.plain; }
    bool is_plain() const { return tensor_.packed == tensor_.plain; }
    const py::object& packed_as() const { return packed_as_; }

    // Of the packed array.
    operator Expected() const { return {dtype(), shape(), &packed_as_, ragged_}; }
    // From the plain array, of type `from`, and back; planned once, with the GIL.
    const Reorder& packing(DType from) const;
    // From a plain array whose axes lie these elements apart; planned anew where it is not dense.
    std::shared_ptr<const Reorder> packing(DType from, const Shape& strides) const;
    const Reorder& unpacking() const;

    // With what fills up its blocks, as packing does.
    Expected written_whole() const { return {dtype(), shape(), &packed_as_}; }
    Expected plain() const { return {dtype(), plain_shape()}; }

private:
    TensorForm tensor_;
    bool ragged_ = false;
    py::object packed_as_;  // str, or null
    mutable std::map<DType, std::shared_ptr<const Reorder>> packing_ = {};
    mutable std::shared_ptr<const Reorder> unpacking_ = {};
};

// The table, by name.
class Forms {
public:
    explicit Forms(std::vector<TensorForm> table);

    // Throws py::key_error.
    const Form& operator[](std::string_view name) const;
    // As above, of the type that `array`, if it is one, may have besides: gradients of weights come
    // in two.
    const Form& matching(const std::string& name, py::handle array) const;
    // Of every form, by its name.
    py::dict shapes(const Shape& (Form::*shape_of)() const) const;

private:
    std::vector<Form> forms_;
};

// The subclass of ndarray whose attribute `packed_as` names the form; said once, by the package.
void set_packed_type(py::object type);
// The form that an array says it has, else null.
py::object packed_as(py::handle array);
void set_packed_as(py::handle array, const py::object& name);
// The same memory, as an array that says it.
py::object packed_view(const py::object& array, const py::object& name);

// float32, or bfloat16 or its bits; nothing for any other dtype.
std::optional<DType> float_type_of(const py::array& array);

// NumPy's dtype; of bfloat16 that of `like` where its elements are of two bytes: bits that come as
// uint16 leave as uint16.
py::dtype dtype_for(DType dtype, py::handle like);
// ml_dtypes', or uint16 where it is not installed.
py::dtype bfloat16_dtype();

// A new array on a cache line, so that no vector that a kernel loads straddles two. Uninitialised
// unless it is to hold zeros; its memory is the pool's, of a large one that of all results.
py::object new_array(const Expected& look, const py::dtype& dtype, ArrayPool* pool = nullptr);

}  // namespace dlprim::bindings
