#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <optional>

#include "bindings/arrays/call.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/kernel/batch_operand.h"
#include "bindings/kernel/kernel.h"

namespace dlprim::bindings {
namespace {

// Everything that a call needs, checked; keeps the arrays and copied tables alive.
class CheckedCall {
public:
    CheckedCall(const BrgemmSpec& spec, const CallArguments& from)
        : a_(spec.addressing, from.a,
             {spec.a_type, spec.trans_a ? spec.words() : spec.m, spec.a_columns(),
              spec.trans_a ? elements_per_word(spec.a_type) : 1, spec.lda, span_a(spec)}),
          b_(spec.addressing, from.b,
             {spec.b_type, spec.words(), spec.n, elements_per_word(spec.b_type), spec.ldb,
              span_b(spec)}),
          c_("c", from.c, spec.c_type) {
        set_batch(from.batch);
        a_.require_inside(args_.batch);
        b_.require_inside(args_.batch);
        set_result(spec);
        set_bias(spec, from.bias);
        set_scale(spec, from.scale);
        set_residual(spec, from.residual);
        set_mask(spec, from.relu_mask);
        args_.zero_point_a = zero_point("zero_point_a", from.zero_point_a, spec.zero_point_a);
        args_.zero_point_b = zero_point("zero_point_b", from.zero_point_b, spec.zero_point_b);
        args_.a = a_.base();
        args_.b = b_.base();
        args_.stride_a = a_.stride();
        args_.stride_b = b_.stride();
        args_.offsets_a = a_.offsets();
        args_.offsets_b = b_.offsets();
    }

    const BrgemmArgs& args() const { return args_; }

private:
    void set_batch(py::handle argument) {
        const std::int64_t implied = std::max(a_.batch(), b_.batch());
        args_.batch = integer_or("batch", argument, implied < 0 ? 1 : implied);
        if (args_.batch < 0) {
            refuse("batch is " + std::to_string(args_.batch) + ", expected at least 0");
        }
        require_batch("a", a_.batch(), argument.is_none());
        require_batch("b", b_.batch(), argument.is_none());
    }

    // An explicit batch may use only the first of the matrices that an operand holds.
    void require_batch(const char* name, std::int64_t held, bool exactly) const {
        if (held < 0 || held == args_.batch || (!exactly && held > args_.batch)) return;
        refuse(std::string(name) + " holds " + std::to_string(held) +
               " matrices, expected the batch of " + std::to_string(args_.batch));
    }

    void set_result(const BrgemmSpec& spec) {
        c_.require_one_matrix(spec.m, spec.n, spec.ldc);
        c_.require_writeable();
        a_.require_apart_from(c_);
        b_.require_apart_from(c_);
        args_.c = c_.data();
    }

    // Whether an argument that the kernel needs is there, and none that it does not.
    static bool given(const char* name, py::handle argument, bool needed) {
        if (argument.is_none() == needed) {
            refuse(std::string(name) + (needed ? " is missing, but the kernel was made with it"
                                               : " is given, but the kernel was made without it"));
        }
        return needed;
    }

    const float* vector_argument(std::optional<ArrayView>& view, const char* name,
                                 py::handle argument, std::int64_t length) const {
        view.emplace(name, argument, DType::f32);
        view->require_vector(length);
        c_.require_apart(*view);
        return reinterpret_cast<const float*>(view->data());
    }

    // A bfloat16 bias of a bfloat16 kernel is widened into memory of the call.
    void set_bias(const BrgemmSpec& spec, py::handle argument) {
        if (!given("bias", argument, spec.epilogue.bias)) return;
        if (spec.a_type != DType::bf16 || !is_bfloat16_array(argument)) {
            args_.bias = vector_argument(bias_, "bias", argument, spec.n);
            return;
        }
        bias_.emplace("bias", argument, DType::bf16);
        bias_->require_vector(spec.n);
        const auto* bits = reinterpret_cast<const std::uint16_t*>(bias_->data());
        for (std::int64_t i = 0; i < spec.n; ++i) {
            widened_bias_.push_back(
                std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16));
        }
        args_.bias = widened_bias_.data();
    }

    // One scale may also be a number.
    void set_scale(const BrgemmSpec& spec, py::handle argument) {
        const Scale scale = spec.epilogue.scale;
        if (!given("scale", argument, scale != Scale::none)) return;
        if (scale == Scale::tensor && PyFloat_Check(argument.ptr()) != 0) {
            one_scale_ = static_cast<float>(PyFloat_AS_DOUBLE(argument.ptr()));
            args_.scale = &one_scale_;
            return;
        }
        args_.scale =
            vector_argument(scale_, "scale", argument, scale == Scale::column ? spec.n : 1);
    }

    void set_residual(const BrgemmSpec& spec, py::handle argument) {
        if (!given("residual", argument, spec.epilogue.residual)) return;
        residual_.emplace("residual", argument, spec.c_type);
        residual_->require_one_matrix(spec.m, spec.n, spec.ldc);
        c_.require_apart(*residual_);
        args_.residual = residual_->data();
    }

    void set_mask(const BrgemmSpec& spec, py::handle argument) {
        if (!given("relu_mask", argument, spec.epilogue.relu_mask)) return;
        mask_.emplace("relu_mask", argument, DType::u8);
        mask_->require_one_matrix(spec.m, (spec.n + 7) / 8, spec.ldmask);
        mask_->require_writeable();
        mask_->require_apart(c_);
        a_.require_apart_from(*mask_);
        b_.require_apart_from(*mask_);
        for (const auto* view : {&bias_, &scale_, &residual_}) {
            if (*view) mask_->require_apart(**view);
        }
        args_.relu_mask = reinterpret_cast<std::uint8_t*>(mask_->data());
    }

    static std::int32_t zero_point(const char* name, py::handle argument, bool needed) {
        if (!given(name, argument, needed)) return 0;
        const std::int64_t value = integer_or(name, argument, 0);
        if (value < INT32_MIN || value > INT32_MAX) {
            refuse(std::string(name) + " is " + std::to_string(value) + ", expected an int32");
        }
        return static_cast<std::int32_t>(value);
    }

    BatchOperand a_;
    BatchOperand b_;
    ArrayView c_;
    std::optional<ArrayView> bias_;
    std::optional<ArrayView> scale_;
    std::optional<ArrayView> residual_;
    std::optional<ArrayView> mask_;
    std::vector<float> widened_bias_;
    float one_scale_ = 1;
    BrgemmArgs args_;
};

}  // namespace

void Kernel::call(const CallArguments& arguments) const {
    const Brgemm& kernel = brgemm_kernel();
    const CheckedCall checked(kernel.spec(), arguments);
    const bool is_quick = kernel.isa() != Isa::scalar;
    run_without_gil(is_quick ? kernel.flops(checked.args().batch) : kFlopsWorthReleasingTheGil,
                    [&] { kernel(checked.args()); });
}

double Kernel::measure(const CallArguments& arguments, std::int64_t repeats) const {
    if (repeats < 1) refuse("repeats is " + std::to_string(repeats) + ", expected at least 1");
    const CheckedCall checked(brgemm_kernel().spec(), arguments);
    const WithoutGil without_gil;
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repeats; ++i) (*kernel_)(checked.args());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / static_cast<double>(repeats);
}

}  // namespace dlprim::bindings
