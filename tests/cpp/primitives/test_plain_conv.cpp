// Convolutions on plain arrays: portions of a minibatch against the passes on all of it. Values are
// small integers, so that every sum is exact in any order, and arrays end where their values do, so
// that the sanitizers see a step too far.
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "conv_problem.h"
#include "primitives/conv/conv2d.h"
#include "primitives/conv/plain_conv.h"
#include "primitives/reorder/reorder.h"

namespace dlprim {
namespace {

using testing::Threads;

std::vector<float> drawn(std::int64_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> digit(-2, 2);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = static_cast<float>(digit(random));
    return values;
}

std::vector<float> reordered(const Layout& from, const std::vector<float>& values,
                             const Layout& to) {
    std::vector<float> made(static_cast<std::size_t>(to.elements()));
    reorder(from, values.data(), to, made.data());
    return made;
}

struct Case {
    explicit Case(const ConvShape& geometry)
        : shape(validated(geometry)), forms(conv_forms({shape, DType::f32, Format::blocked})) {}

    const TensorForm& form(std::string_view name) const { return form_of(forms, name); }
    std::vector<float> plain(std::string_view name, unsigned seed) const {
        return drawn(form(name).plain.elements(), seed);
    }
    std::vector<float> packed(std::string_view name, const std::vector<float>& values) const {
        return reordered(form(name).plain, values, form(name).packed);
    }
    std::vector<float> unpacked(std::string_view name, const std::vector<float>& values) const {
        return reordered(form(name).packed, values, form(name).plain);
    }
    std::vector<float> room(std::string_view name) const {
        return std::vector<float>(static_cast<std::size_t>(form(name).packed.elements()));
    }

    ConvShape shape;
    std::vector<TensorForm> forms;
};

const std::vector<ConvShape>& shapes() {
    // The last has one portion; the others leave a smaller one.
    static const std::vector<ConvShape> all = {
        {.N = 5, .C = 32, .H = 56, .W = 64, .K = 40, .R = 1, .S = 1},
        {.N = 7, .C = 33, .H = 57, .W = 61, .K = 48, .R = 1, .S = 1, .stride_h = 2, .stride_w = 2},
        {.N = 5, .C = 32, .H = 60, .W = 60, .K = 32, .R = 3, .S = 3, .pad_top = 1, .groups = 4},
        {.N = 2, .C = 5, .H = 9, .W = 9, .K = 4, .R = 3, .S = 3, .pad_left = 1}};
    return all;
}

TEST_CASE("portions of plain images: results of the passes on all of them") {
    for (const int count : {1, 3}) {
        const Threads threads(count);
        for (const ConvShape& geometry : shapes()) {
            const Case it(geometry);
            CAPTURE(it.shape.C);
            const ConvSpec spec{.shape = it.shape, .activation = Activation::relu, .bias = true};
            const auto x = it.plain("src", 1), w = it.plain("weights", 2);
            const auto residual = it.plain("dst", 3), bias = drawn(it.shape.K, 4);
            const PlainConv plain(spec);
            CHECK((plain.portions() > 1) == (it.shape.N > 2));
            std::vector<float> y(residual.size());
            plain.forward({.src = x.data(),
                           .weights = w.data(),
                           .bias = bias.data(),
                           .residual = residual.data(),
                           .dst = y.data()});
            const Conv2d conv(spec);
            const auto src = it.packed("src", x), weights = it.packed("weights", w);
            const auto added = it.packed("dst", residual);
            auto dst = it.room("dst");
            conv.forward({.src = src.data(),
                          .weights = weights.data(),
                          .bias = bias.data(),
                          .residual = added.data(),
                          .dst = dst.data()});
            CHECK((y == it.unpacked("dst", dst)));
        }
    }
}

TEST_CASE("portions of plain images: gradients") {
    for (const ConvShape& geometry : shapes()) {
        const Case it(geometry);
        CAPTURE(it.shape.C);
        const ConvSpec spec{.shape = it.shape};
        const auto x = it.plain("src", 1), w = it.plain("weights", 2), dy = it.plain("dst", 3);
        const auto y = it.plain("dst", 4);
        std::vector<float> dx(x.size()), dw(w.size()), db(static_cast<std::size_t>(it.shape.K));
        PlainConv(spec).backward({.diff_dst = dy.data(),
                                  .src = x.data(),
                                  .weights = w.data(),
                                  .saved = y.data(),
                                  .diff_src = dx.data(),
                                  .diff_weights = dw.data(),
                                  .diff_bias = db.data()});
        const Conv2d conv(spec);
        const auto src = it.packed("src", x), weights = it.packed("weights", w);
        const auto saved = it.packed("dst", y);
        auto diff_dst = it.packed("dst", dy), diff_src = it.room("src");
        auto diff_weights = it.room("diff_weights");
        std::vector<float> diff_bias(db.size());
        conv.backward_relu({.diff_dst = diff_dst.data(),
                            .saved = saved.data(),
                            .out = diff_dst.data(),
                            .diff_bias = diff_bias.data()});
        conv.backward_data(diff_dst.data(), weights.data(), diff_src.data());
        conv.backward_weights(src.data(), diff_dst.data(), DType::f32, diff_weights.data());
        CHECK((dx == it.unpacked("src", diff_src)));
        CHECK((dw == it.unpacked("diff_weights", diff_weights)));
        CHECK((db == diff_bias));
    }
}

TEST_CASE("portions of plain images: one gradient without the other") {
    for (const ConvShape& geometry : shapes()) {
        const Case it(geometry);
        CAPTURE(it.shape.C);
        const PlainConv plain({.shape = it.shape});
        const auto x = it.plain("src", 1), w = it.plain("weights", 2), dy = it.plain("dst", 3);
        std::vector<float> dx(x.size()), dw(w.size()), db(static_cast<std::size_t>(it.shape.K));
        auto only_dx = dx, only_dw = dw, only_db = db;
        plain.backward({.diff_dst = dy.data(),
                        .src = x.data(),
                        .weights = w.data(),
                        .diff_src = dx.data(),
                        .diff_weights = dw.data(),
                        .diff_bias = db.data()});
        plain.backward({.diff_dst = dy.data(), .weights = w.data(), .diff_src = only_dx.data()});
        plain.backward({.diff_dst = dy.data(),
                        .src = x.data(),
                        .diff_weights = only_dw.data(),
                        .diff_bias = only_db.data()});
        CHECK((only_dx == dx));
        CHECK((only_dw == dw));
        CHECK((only_db == db));
    }
}

}  // namespace
}  // namespace dlprim
