#include "graph/functions/word_product.h"

#include <cstdint>

#include "graph/network.h"
#include "primitives/linear/word_product.h"

namespace dlprim {

RunOfCall word_product(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 3 && call.outputs.size() == 1;
    WordProductShape shape;
    if (fits) {
        const NetworkTensor &x = network.tensor(call.inputs[0]),
                            &weights = network.tensor(call.inputs[1]),
                            &scale = network.tensor(call.inputs[2]),
                            &dst = network.tensor(call.outputs[0]);
        using Shape = std::vector<std::int64_t>;
        fits = x.shape.size() == 2 && dst.shape.size() == 2 && x.shape[0] == dst.shape[0] &&
               x.elements() > 0 && dst.elements() > 0;
        if (fits) shape = {x.shape[0], x.shape[1], dst.shape[1]};
        fits = fits && x.dtype == "uint8" && weights.dtype == "int16" &&
               weights.shape == Shape{shape.blocks(), shape.pairs(), shape.kColumns, 2} &&
               scale.dtype == "float32" && scale.shape == Shape{shape.columns} &&
               dst.dtype == "float32";
    }
    require_fit(fits, network, call,
                "uint8 (N, K), packed int16, a scale for each column and (N, M)");
    const WordProduct made(shape, static_cast<std::int16_t>(number_of(call, "zero")));
    return [made, call](const Addresses& at) {
        made.run(at[call.inputs[0]], at[call.inputs[1]], at[call.inputs[2]], at[call.outputs[0]]);
    };
}

}  // namespace dlprim
