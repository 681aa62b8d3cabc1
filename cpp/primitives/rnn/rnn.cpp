#include "primitives/rnn/rnn.h"

namespace dlprim {

namespace {

// Plain (rows, channels) and panels of `panel_rows` rows.
Reorder to_panels(const Panels& panels, DType dtype, std::int64_t rows, std::int64_t panel_rows) {
    return {plain_layout(dtype, {{'n', rows}, {'c', panels.channels}}),
            panel_layout(panels, dtype, {'n', rows}, panel_rows)};
}

Reorder from_panels(const Panels& panels, DType dtype, std::int64_t rows, DType to) {
    return {panel_layout(panels, dtype, {'n', rows}, rows),
            plain_layout(to, {{'n', rows}, {'c', panels.channels}})};
}

// The first rows of panels of `panel_rows`, whose padding counts, in pairs.
Reorder row_pairs(const RnnShape& shape, const Panels& panels, std::int64_t panel_rows) {
    const Panels whole{panels.padded(), panels.width};
    const Indices rows{'n', shape.rows()};
    return {panel_layout(whole, shape.dtype, rows, panel_rows),
            panel_layout(whole, shape.dtype, rows, summed_rows(shape), 'c',
                         elements_per_word(shape.dtype))};
}

}  // namespace

Rnn::Reorders::Reorders(const RnnShape& shape, const Panels& of_src, const Panels& of_state)
    : src(to_panels(of_src, shape.dtype, shape.rows(), shape.rows())),
      dst(to_panels(of_state, shape.dtype, shape.rows(), shape.rows() + shape.N)),
      load_state(to_panels(of_state, shape.dtype, shape.N, shape.N)),
      store_state(from_panels(of_state, shape.dtype, shape.N, shape.dtype)),
      load_floats(to_panels(of_state, DType::f32, shape.N, shape.N)),
      store_floats(from_panels(of_state, DType::f32, shape.N, DType::f32)),
      store_rounded(from_panels(of_state, DType::f32, shape.N, shape.dtype)),
      src_pairs(row_pairs(shape, of_src, shape.rows())),
      state_pairs(row_pairs(shape, of_state, shape.rows() + shape.N)),
      delta_pairs(
          row_pairs(shape, {shape.slots() * of_state.padded(), of_state.width}, shape.rows())) {}

Rnn::Rnn(const RnnShape& shape)
    : shape_(validated(shape)),
      forward_reorders_(shape_, shape_.src(), shape_.state()),
      backward_reorders_(shape_, shape_.src_lines(), shape_.state_lines()),
      gates_(shape_) {
    const std::size_t count = shape_.has_backward() ? kRnnPasses.size() : kForwardPasses;
    for (std::size_t i = 0; i < count; ++i) {
        passes_.try_emplace(kRnnPasses.at(i), rnn_rules(shape_, kRnnPasses.at(i)));
    }
}

std::vector<RnnPass> Rnn::passes() const {
    std::vector<RnnPass> known;
    for (const auto& [pass, scheduled] : passes_) known.push_back(pass);
    return known;
}

const ScheduledPass& Rnn::found(RnnPass pass) const {
    if (!passes_.contains(pass)) require_backward(shape_);
    return passes_.at(pass);
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
