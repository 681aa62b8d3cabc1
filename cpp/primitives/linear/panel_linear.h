// A linear layer whose weights lie in panels (panels/panel_format.h), on plain rows: what decodes
// language models, where a step is as long as reading the weights. Threads share panels, and rows
// are rounded to records once for all of them.
//
// Results are the same bits for any number of threads, and for a row in whatever company it comes.
// An object may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "panels/panel_format.h"
#include "panels/panel_packing.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

struct PanelLinearForward {
    const void* src = nullptr;  // (N, C) of `dtype`, in C's order
    DType dtype = DType::f32;   // or bfloat16; of dst, too
    std::int64_t N = 0;
    const char* weights = nullptr;
    const float* bias = nullptr;  // null for none
    Activation activation = Activation::none;
    void* dst = nullptr;
};

class PanelLinear {
public:
    // x_bits: 15, or 8, in which rows are rounded.
    PanelLinear(const PanelFormat& format, std::int64_t K, std::int64_t C, int x_bits)
        : format_(format), K_(K), C_(C), x_bits_(x_bits) {}

    const PanelFormat& format() const { return format_; }
    std::int64_t K() const { return K_; }
    std::int64_t C() const { return C_; }
    int x_bits() const { return x_bits_; }
    std::int64_t weight_bytes() const { return weight_panels(K_) * format_.panel_bytes(C_); }
    double flops(std::int64_t N) const {
        return 2 * static_cast<double>(N) * static_cast<double>(K_) * static_cast<double>(C_);
    }

    void forward(const PanelLinearForward& tensors) const;

    // Plain weights (K, C), all rows of them, to panels. False where one is not finite.
    bool pack(const PlainWeights& weights, char* to) const;
    void pack(const GivenWeights& weights, char* to) const;
    // (K, C), what the panels stand for.
    void unpack(const char* weights, float* to) const;

private:
    struct Records;

    void make_records(const PanelLinearForward& tensors, const Records& to) const;
    void multiply(const PanelLinearForward& tensors, const Records& records) const;
    int columns_of(std::int64_t panel) const;

    PanelFormat format_;
    std::int64_t K_;
    std::int64_t C_;
    int x_bits_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
