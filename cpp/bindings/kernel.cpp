#include "bindings/kernel.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace dlprim::bindings {
namespace {

// Below this many operations a call is shorter than handing the GIL over and back.
constexpr double kFlopsWorthReleasingTheGil = 1 << 20;

[[noreturn]] void refuse(const std::string& sentence) { throw py::value_error(sentence); }

struct OperandShape {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t ld;
    std::int64_t span;  // bytes of one matrix
};

// One of A and B: where its matrices are, with the memory that holds them kept alive.
struct Operand {
    std::vector<ArrayView> arrays;  // one, or one per matrix with Addressing::address
    std::vector<const void*> pointers;
    std::vector<std::int64_t> offsets;
    std::int64_t stride = 0;
    std::int64_t batch = -1;     // that its shape implies; -1 when it implies none
    bool reads_between = false;  // elements of a view, where an explicit stride leads there

    const void* base() const {
        if (arrays.empty()) return nullptr;  // an empty list of matrices
        return pointers.empty() ? static_cast<const void*>(arrays.front().data())
                                : static_cast<const void*>(pointers.data());
    }
};

Operand strided(const char* name, py::handle object, const char* stride_name, py::handle stride,
                const OperandShape& shape) {
    Operand operand;
    operand.arrays.emplace_back(name, object);
    const ArrayView& view = operand.arrays.front();
    const bool explicit_stride = !stride.is_none();
    const bool raw_memory = view.ndim() == 1 || (explicit_stride && view.is_c_contiguous());
    if (raw_memory) {
        if (!view.is_c_contiguous()) refuse(view.description() + ", expected contiguous memory");
    } else {
        if (view.ndim() > 3) {
            refuse(view.description() +
                   ", expected (rows, columns) or (batch, rows, columns); "
                   "memory of any other shape needs " +
                   stride_name);
        }
        view.require_matrix(shape.rows, shape.columns, shape.ld);
    }
    if (view.ndim() == 3 && !raw_memory) {
        operand.batch = view.shape(0);
        operand.stride = view.stride(0);
    }
    operand.stride = integer_or(stride_name, stride, operand.stride);
    operand.reads_between = explicit_stride && !raw_memory;
    return operand;
}

std::vector<std::int64_t> offsets_of(const char* name, py::handle object) {
    if (object.is_none()) refuse(std::string(name) + " is missing, expected byte offsets (int64)");
    if (!py::isinstance<py::array>(object)) {
        throw py::type_error(std::string(name) + " is not a NumPy array, expected one of int64");
    }
    const auto array = py::reinterpret_borrow<py::array>(object);
    if (!array.dtype().equal(py::dtype::of<std::int64_t>()) || array.ndim() != 1) {
        throw py::type_error(
            std::string(name) + " has dtype " + std::string(py::str(array.dtype())) + " and " +
            std::to_string(array.ndim()) + " dimensions, expected a vector of int64");
    }
    const auto values = py::array_t<std::int64_t>(array);
    const auto view = values.unchecked<1>();
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(view.shape(0)));
    for (py::ssize_t i = 0; i < view.shape(0); ++i) offsets[static_cast<std::size_t>(i)] = view(i);
    return offsets;
}

Operand by_offset(const char* name, py::handle object, const char* offsets_name,
                  py::handle offsets) {
    Operand operand;
    operand.arrays.emplace_back(name, object);
    const ArrayView& view = operand.arrays.front();
    if (!view.is_c_contiguous()) refuse(view.description() + ", expected contiguous memory");
    operand.offsets = offsets_of(offsets_name, offsets);
    operand.batch = static_cast<std::int64_t>(operand.offsets.size());
    return operand;
}

Operand by_address(const char* name, py::handle object, const OperandShape& shape) {
    if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object)) {
        throw py::type_error(std::string(name) +
                             " is not a list or tuple, expected one array per matrix "
                             "(addressing='address')");
    }
    Operand operand;
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
        const ArrayView& view = operand.arrays.emplace_back(name, item);
        if (view.ndim() != 2) refuse(view.description() + ", expected two dimensions");
        view.require_matrix(shape.rows, shape.columns, shape.ld);
        operand.pointers.push_back(view.data());
    }
    operand.batch = static_cast<std::int64_t>(operand.arrays.size());
    return operand;
}

void require_inside(const Operand& operand, std::int64_t batch, const OperandShape& shape,
                    const char* stride_name, bool stride_given) {
    if (batch == 0 || !operand.pointers.empty()) return;
    const ArrayView& view = operand.arrays.front();
    if (!operand.offsets.empty()) {
        for (std::int64_t i = 0; i < batch; ++i) {
            view.require_inside(operand.offsets[static_cast<std::size_t>(i)], shape.span);
        }
        return;
    }
    if (batch > 1 && operand.batch < 0 && !stride_given) {
        refuse(std::string(stride_name) + " is missing: " + view.description() +
               " does not say where the " + std::to_string(batch) + " matrices are");
    }
    std::int64_t last = 0;
    if (__builtin_mul_overflow(batch - 1, operand.stride, &last)) {
        refuse(std::string(stride_name) + " times the batch does not fit in 64 bits");
    }
    view.require_inside(0, shape.span);
    view.require_inside(last, shape.span);
    if (batch > 1) view.require_inside(operand.stride, shape.span);
}

// Everything that a call needs, checked; keeps the arrays and copied tables alive.
class CheckedCall {
public:
    CheckedCall(const BrgemmSpec& spec, const CallArguments& from)
        : a_shape_{spec.a_rows(), spec.a_columns(), spec.lda, span_a(spec)},
          b_shape_{spec.k, spec.n, spec.ldb, span_b(spec)},
          a_(operand(spec, "a", from.a, "stride_a", from.stride_a, "offsets_a", from.offsets_a,
                     a_shape_)),
          b_(operand(spec, "b", from.b, "stride_b", from.stride_b, "offsets_b", from.offsets_b,
                     b_shape_)),
          c_("c", from.c) {
        set_batch(spec, from);
        require_inside(a_, args_.batch, a_shape_, "stride_a", !from.stride_a.is_none());
        require_inside(b_, args_.batch, b_shape_, "stride_b", !from.stride_b.is_none());
        set_result(spec);
        set_bias(spec, from.bias);
        args_.a = a_.base();
        args_.b = b_.base();
        args_.stride_a = a_.stride;
        args_.stride_b = b_.stride;
        args_.offsets_a = a_.offsets.data();
        args_.offsets_b = b_.offsets.data();
    }

    const BrgemmArgs& args() const { return args_; }

private:
    static Operand operand(const BrgemmSpec& spec, const char* name, py::handle object,
                           const char* stride_name, py::handle stride, const char* offsets_name,
                           py::handle offsets, const OperandShape& shape) {
        if (spec.addressing != Addressing::stride && !stride.is_none()) {
            refuse(std::string(stride_name) + " is given, but the kernel's addressing is '" +
                   std::string(name_of(spec.addressing)) + "'");
        }
        if (spec.addressing != Addressing::offset && !offsets.is_none()) {
            refuse(std::string(offsets_name) + " is given, but the kernel's addressing is '" +
                   std::string(name_of(spec.addressing)) + "'");
        }
        switch (spec.addressing) {
            case Addressing::address: return by_address(name, object, shape);
            case Addressing::offset: return by_offset(name, object, offsets_name, offsets);
            case Addressing::stride: break;
        }
        return strided(name, object, stride_name, stride, shape);
    }

    void set_batch(const BrgemmSpec& spec, const CallArguments& from) {
        const bool a_says = spec.addressing != Addressing::stride || from.stride_a.is_none();
        const bool b_says = spec.addressing != Addressing::stride || from.stride_b.is_none();
        const std::int64_t in_a = a_says ? a_.batch : -1;
        const std::int64_t in_b = b_says ? b_.batch : -1;
        const std::int64_t implied = std::max(in_a, in_b);
        args_.batch = integer_or("batch", from.batch, implied < 0 ? 1 : implied);
        if (args_.batch < 0) {
            refuse("batch is " + std::to_string(args_.batch) + ", expected at least 0");
        }
        require_batch("a", in_a, from.batch.is_none());
        require_batch("b", in_b, from.batch.is_none());
    }

    // An explicit batch may use only the first of the matrices that an operand holds.
    void require_batch(const char* name, std::int64_t held, bool exactly) const {
        if (held < 0 || held == args_.batch || (!exactly && held > args_.batch)) return;
        refuse(std::string(name) + " holds " + std::to_string(held) +
               " matrices, expected the batch of " + std::to_string(args_.batch));
    }

    void set_result(const BrgemmSpec& spec) {
        if (c_.ndim() != 2) refuse(c_.description() + ", expected two dimensions");
        c_.require_matrix(spec.m, spec.n, spec.ldc);
        c_.require_writeable();
        for (const ArrayView& view : a_.arrays) c_.require_apart(view, a_.reads_between);
        for (const ArrayView& view : b_.arrays) c_.require_apart(view, b_.reads_between);
        args_.c = c_.data();
    }

    void set_bias(const BrgemmSpec& spec, py::handle bias) {
        if (bias.is_none() == spec.epilogue.bias) {
            refuse(spec.epilogue.bias ? "bias is missing, but the kernel was made with bias=True"
                                      : "bias is given, but the kernel was made with bias=False");
        }
        if (bias.is_none()) return;
        bias_.emplace("bias", bias);
        bias_->require_vector(spec.n);
        c_.require_apart(*bias_);
        args_.bias = reinterpret_cast<const float*>(bias_->data());
    }

    OperandShape a_shape_;
    OperandShape b_shape_;
    Operand a_;
    Operand b_;
    ArrayView c_;
    std::optional<ArrayView> bias_;
    BrgemmArgs args_;
};

}  // namespace

void Kernel::call(const CallArguments& arguments) const {
    const Brgemm& kernel = brgemm_kernel();
    const CheckedCall checked(kernel.spec(), arguments);
    if (kernel.flops(checked.args().batch) < kFlopsWorthReleasingTheGil) {
        kernel(checked.args());
        return;
    }
    const py::gil_scoped_release without_gil;
    kernel(checked.args());
}

double Kernel::measure(const CallArguments& arguments, std::int64_t repeats) const {
    if (repeats < 1) refuse("repeats is " + std::to_string(repeats) + ", expected at least 1");
    const CheckedCall checked(brgemm_kernel().spec(), arguments);
    const py::gil_scoped_release without_gil;
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repeats; ++i) (*kernel_)(checked.args());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / static_cast<double>(repeats);
}

}  // namespace dlprim::bindings
