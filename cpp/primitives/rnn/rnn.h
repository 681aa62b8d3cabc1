// A recurrent layer in one direction whose shape is fixed once: LSTM, GRU or a plain cell, forward
// and, in the usual form of its cell or with relu in a plain one, backward through time. The
// products with src take part in no recurrence, so they run over many steps at once; a step then is
// a nest of blocks, each a product with the hidden state whose tile the gates turn into the next
// state while it is hot. Source of the algorithm: arXiv 1906.06440, section on recurrent networks.
// Results are the same bits from run to run and for any number of threads. An object may be used by
// several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "primitives/nest/scheduled_pass.h"
#include "primitives/reorder/reorder.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/rnn/rnn_panels.h"
#include "primitives/rnn/rnn_pass.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

// What the backward pass needs of the forward pass, beside its arguments and dst. All float32.
struct RnnSaved {
    float* gates = nullptr;     // (T, N, gates, K), after activation; zero in padding
    float* cells = nullptr;     // LSTM: (T, N, K), c after each step, kept through padding
    float* hidden_n = nullptr;  // GRU: (T, N, K), w_hn h + b_hn; zero in padding
};

struct RnnForward {
    const void* src = nullptr;  // (T, N, C)
    RnnPackedWeights weights = {};
    const float* peepholes = nullptr;       // (3, K) of i, f and o, where the form has them
    const void* h_0 = nullptr;              // (N, K), or null for zeros
    const float* c_0 = nullptr;             // LSTM: (N, K), or null for zeros
    const std::int64_t* lengths = nullptr;  // (N), from 0 to T, or null
    void* dst = nullptr;                    // (T, N, K)
    void* h_n = nullptr;                    // (N, K)
    float* c_n = nullptr;                   // LSTM: (N, K)
    RnnSaved saved = {};                    // null gates: an inference
};

struct RnnBackward {
    const void* diff_dst = nullptr;   // (T, N, K), or null for zeros
    const void* diff_h_n = nullptr;   // (N, K), or null for zeros
    const float* diff_c_n = nullptr;  // LSTM: (N, K), or null for zeros
    RnnPackedWeights weights = {};    // the transposed ones
    const void* src = nullptr;        // as the forward pass had them
    const void* h_0 = nullptr;
    const float* c_0 = nullptr;
    const std::int64_t* lengths = nullptr;
    const void* dst = nullptr;
    RnnSaved saved = {};
    void* diff_src = nullptr;    // (T, N, C)
    void* diff_h_0 = nullptr;    // (N, K)
    float* diff_c_0 = nullptr;   // LSTM: (N, K)
    float* diff_w_ih = nullptr;  // (gates*K, C)
    float* diff_w_hh = nullptr;  // (gates*K, K)
    float* diff_b_ih = nullptr;  // (gates*K)
    float* diff_b_hh = nullptr;  // (gates*K)
};

class Rnn {
public:
    // Throws std::invalid_argument for an impossible shape.
    explicit Rnn(const RnnShape& shape);

    const RnnShape& shape() const { return shape_; }

    // Operands must not overlap results. Throws std::invalid_argument where gradients, or what
    // they need, are asked of a form that has no backward pass.
    void forward(const RnnForward& tensors) const;
    void backward(const RnnBackward& tensors) const;

    // Bytes beside operands and results that a call uses with the present number of threads.
    std::int64_t forward_scratch_bytes() const;
    std::int64_t backward_scratch_bytes() const;

    // Those that the form has.
    std::vector<RnnPass> passes() const;
    // All throw std::invalid_argument for a pass that the form has not, or cannot follow.
    Schedule schedule(RnnPass pass) const { return found(pass).schedule(); }
    void set_schedule(RnnPass pass, const Schedule& schedule) {
        found(pass);
        passes_.at(pass).set_schedule(schedule);
    }
    std::vector<Loop> loops(RnnPass pass) const { return found(pass).loops(); }
    std::vector<Schedule> candidates(RnnPass pass, int count) const {
        return found(pass).candidates(count);
    }
    std::string describe() const;

private:
    friend class RnnSteps;

    // Plain tensors to panels of a pass and back, and panels to what the gradients of the weights
    // sum over in bfloat16, pairs of rows. Panels of states have the one before the first step too.
    struct Reorders {
        Reorders(const RnnShape& shape, const Panels& of_src, const Panels& of_state);

        Reorder src;
        Reorder dst;
        Reorder load_state;
        Reorder store_state;
        Reorder load_floats;  // of a float32 state
        Reorder store_floats;
        Reorder store_rounded;  // to one of the layer's type
        Reorder src_pairs;
        Reorder state_pairs;
        Reorder delta_pairs;
    };

    const ScheduledPass& found(RnnPass pass) const;

    RnnShape shape_;
    Reorders forward_reorders_;
    Reorders backward_reorders_;
    std::map<RnnPass, ScheduledPass> passes_;
    GatePrograms gates_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
