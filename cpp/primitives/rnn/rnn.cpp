#include "primitives/rnn/rnn.h"

namespace dlprim {

Rnn::Rnn(const RnnShape& shape) : shape_(validated(shape)) {
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
