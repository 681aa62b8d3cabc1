#include "primitives/rnn/rnn.h"

namespace dlprim {

Rnn::SummedPairs::SummedPairs(const RnnShape& shape)
    : src(row_pairs(shape.dtype, shape.src(), shape.rows(), shape.rows())),
      states(row_pairs(shape.dtype, shape.state(), shape.rows(), shape.rows() + shape.N)),
      deltas(row_pairs(shape.dtype, {kSlots * shape.state().padded(), shape.state().width},
                       shape.rows(), shape.rows())) {}

Rnn::Rnn(const RnnShape& shape) : shape_(validated(shape)) {
    if (shape_.dtype != DType::f32) pairs_.emplace(shape_);
    for (const RnnPass pass : kRnnPasses) passes_.try_emplace(pass, rnn_rules(shape_, pass));
}

std::string Rnn::describe() const {
    const Panels in = shape_.src();
    const Panels out = shape_.state();
    std::string text = "panels: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.width) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.width) + "\n";
    if (shape_.rows() == 0) return text;
    for (const auto& [pass, scheduled] : passes_) {
        text += described(std::string(name_of(pass)), scheduled);
    }
    return text;
}

}  // namespace dlprim
