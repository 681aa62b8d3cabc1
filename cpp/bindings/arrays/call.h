// One call of a primitive: its operands and results, each checked once, exactly, before anything is
// written. Operands are asked for before results, so that every result is held against all of them
// and against earlier results. Then the work runs without the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>

#include "bindings/arrays/form.h"
#include "bindings/arrays/without_gil.h"

namespace dlprim::bindings {

// Fewer operations are shorter than handing the GIL over and back.
inline constexpr double kFlopsWorthReleasingTheGil = 1 << 20;

template <class Body>
void run_without_gil(double flops, const Body& body) {
    if (flops < kFlopsWorthReleasingTheGil) {
        body();
        return;
    }
    const WithoutGil without_gil;
    body();
}

// A result: the array, and its memory. Both null where there is none.
struct Written {
    py::object array = {};
    Memory data = {};
};

// An array that is read where it lies, through strides in elements that point upwards.
struct Plain {
    Memory data = {};
    DType dtype = DType::f32;
    Shape strides = {};
};

class Call {
public:
    // New results take their memory from the pool where there is one.
    explicit Call(ArrayPool* pool = nullptr) : pool_(pool) {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
        for (std::size_t i = 0; i < count_; ++i) taken(i).~Taken();
    }

    // The memory of a C-contiguous array. Throws py::type_error or py::value_error, a sentence that
    // begins with `name`.
    Memory operand(const char* name, py::handle array, const Expected& expected);
    Plain plain(const char* name, py::handle array, const Expected& expected);
    // Null where the array is None.
    Memory optional(const char* name, py::handle array, const Expected& expected) {
        return array.is_none() ? Memory{} : operand(name, array, expected);
    }

    // `out`, or where it is None a new array of the type that suits `like`. It may be exactly one
    // of the operands `replaced`, else shares no memory with what came before.
    Written result(const char* name, py::handle out, const Expected& expected, py::handle like = {},
                   std::initializer_list<const void*> replaced = {});
    // Nothing where `out` is None.
    Written optional_result(const char* name, py::handle out, const Expected& expected,
                            std::initializer_list<const void*> replaced = {}) {
        return out.is_none() ? Written{} : result(name, out, expected, {}, replaced);
    }

    // Runs what writes the results, which then say in which form they are.
    template <class Body>
    void run(const Body& body, double flops = kFlopsWorthReleasingTheGil) {
        run_without_gil(flops, body);
        say_forms();
    }

private:
    struct Taken {
        ArrayView view;
        bool is_result = false;
        const py::object* becomes = nullptr;  // what a given result will be packed as
    };

    // The most that a pass has. Most have four, so places are made as they are taken.
    static constexpr std::size_t kMost = 24;

    Taken& taken(std::size_t index) {
        return *std::launder(reinterpret_cast<Taken*>(memory_) + index);
    }

    // Checked but for the form that it is packed in.
    Taken& take(const char* name, py::handle array, const Expected& expected, bool dense = true);
    void say_forms();

    ArrayPool* pool_;
    std::size_t count_ = 0;
    alignas(Taken) std::byte memory_[kMost * sizeof(Taken)];
};

// A call whose operands come as a dict of arrays by name, None or absent where there is none,
// because there are a dozen of them.
class NamedCall {
public:
    NamedCall(const Forms& forms, const py::dict& arrays, ArrayPool* pool = nullptr)
        : forms_(forms), arrays_(arrays), call_(pool) {}

    py::object at(const char* name) const;

    // Null where there is none, of a form or at all. Sentences say `called`, what the caller calls
    // the argument, or else the name.
    Memory optional(const char* name, const char* called = nullptr) {
        const py::object array = at(name);
        if (array.is_none()) return {};
        return call_.operand(called == nullptr ? name : called, array, forms_[name]);
    }
    Memory required(const char* name, const char* called = nullptr);

    // A new array where there is none, whose every element will be written.
    Memory result(const char* name, const char* called = nullptr);
    // Nothing where there is none.
    Memory optional_result(const char* name, std::initializer_list<const void*> replaced = {}) {
        return call_.optional_result(name, at(name), forms_[name], replaced).data;
    }

    // The results by name.
    template <class Body>
    py::dict run(const Body& body) {
        call_.run(body);
        return results_;
    }

private:
    const Forms& forms_;
    const py::dict& arrays_;
    Call call_;
    py::dict results_;
};

// The type of a plain array that is to be packed: its own where packing rounds it, as master
// weights are, which are float32 whatever the passes multiply.
DType plain_type_of(const Form& form, py::handle array);
// The plain array `name` as `to`, which begins with what `form` is: a new array where `out` is
// None. What else stands in it is written by what `then` makes for the plain array, with the GIL.
template <class Then>
py::object pack_then(const Form& form, const Form& to, const char* name, py::handle plain,
                     py::handle out, const Then& then) {
    Call call;
    const DType from = plain_type_of(form, plain);
    const Plain src = call.plain(name, plain, {from, form.plain_shape()});
    const Written packed = call.result("out", out, to.written_whole(), plain);
    const std::shared_ptr<const Reorder> packing = form.packing(from, src.strides);
    const auto write_rest = then(src);
    call.run([&] {
        packing->run(src.data, packed.data);
        write_rest(packed.data);
    });
    return packed.array;
}

// Between the plain array and the packed one of a form; a new array where `out` is None. `name` is
// that of the array which is read.
py::object pack(const Form& form, const char* name, py::handle plain, py::handle out);
py::object unpack(const Form& form, const char* name, py::handle packed, py::handle out);

}  // namespace dlprim::bindings
