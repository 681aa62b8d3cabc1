// Where the operands of a recurrent layer are: panels (rnn_shape.h), and the weights of a cell in
// the packed form its products read.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/rnn/rnn_shape.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// [panel][row][width] of panels of `panel_rows` rows, of which `rows` are meant; neighbouring rows
// of a word are side by side.
Layout panel_layout(const Panels& of, DType dtype, Indices rows, std::int64_t panel_rows,
                    char channels = 'c', std::int64_t word = 1);

// Plain weights in PyTorch's form, (gates*K, C), (gates*K, K) and twice (gates*K); biases float32
// or null.
struct RnnWeights {
    const void* w_ih = nullptr;
    const void* w_hh = nullptr;
    const float* b_ih = nullptr;
    const float* b_hh = nullptr;
};

// Packed: the panels of a gate are [panel of K][channel of the input][width], in pairs of channels
// for bfloat16.
struct RnnPackedWeights {
    void* w_ih = nullptr;  // [panel of K][gate][padded C][width of K]
    void* w_hh = nullptr;  // [panel of K][gate][padded K][width of K]
    // Transposed, for the gradients: [panel of C or K][gate][padded K][width of C or K], the gates
    // in the order of the slots.
    void* w_ih_transposed = nullptr;
    void* w_hh_transposed = nullptr;
    // (sums, K in whole vectors): the sum of both biases by gate; of a GRU that resets after the
    // product r and z, n of b_ih, n of b_hh.
    float* bias = nullptr;
};

// Every array of the passes by its name, the packed weights under those of RnnPackedWeights behind
// "packed_" and "transposed_". Letters of weights: g gates, k and c channels of the state and of
// what is multiplied. The gates of a GRU's transposed weights are in another order, which no layout
// has: transpose_weights() makes them.
std::vector<TensorForm> rnn_forms(const RnnShape& shape);

void pack_weights(const RnnShape& shape, const RnnWeights& plain, const RnnPackedWeights& packed);
// From the packed ones.
void transpose_weights(const RnnShape& shape, const RnnPackedWeights& packed);

}  // namespace dlprim
