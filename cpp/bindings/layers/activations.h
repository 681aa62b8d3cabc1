// Activations of images as layers see them: shape, type and layout, and the forms of all arrays
// that go with them. Batch normalisation, pooling and resampling are made of one, and Python packs
// by it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "bindings/primitives/primitive.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/tensor/channel_blocks.h"

namespace dlprim::bindings {

class PyActivations {
public:
    // `shape` is (N, C, H, W); the channels lie in `groups` groups of blocks.
    PyActivations(const Shape& shape, std::int64_t groups, const std::string& dtype,
                  const std::string& layout)
        : PyActivations(shape, groups, parse_dtype(dtype),
                        layout == "NHWC" ? Format::nhwc : Format::blocked) {}

    const Activations& tensor() const { return tensor_; }
    Format layout() const { return layout_; }
    const Forms& forms() const { return forms_; }
    // One of another height and width.
    PyActivations resized(std::int64_t height, std::int64_t width) const {
        const Shape& shape = forms_["packed"].plain_shape();
        return {{shape[0], shape[1], height, width}, tensor_.blocks.groups, tensor_.dtype, layout_};
    }
    // The table of a layer: `packed` arrays, uint8 `masks` with a bit for each element of these,
    // and float32 arrays of a value `by_channel`.
    Forms table(std::initializer_list<const char*> packed, std::initializer_list<const char*> masks,
                std::initializer_list<const char*> by_channel) const {
        const TensorForm elements = form("");
        TensorForm bits{
            .name = "", .packed = {.dtype = DType::u8}, .packed_shape = elements.packed_shape};
        bits.packed_shape.back() = (bits.packed_shape.back() + 7) / 8;
        const TensorForm channels = plain_form("", DType::f32, {{'c', tensor_.blocks.total()}});
        std::vector<TensorForm> forms;
        const auto add = [&](const auto& names, TensorForm form) {
            for (const char* const name : names) {
                form.name = name;
                forms.push_back(form);
            }
        };
        add(packed, elements);
        add(masks, bits);
        add(by_channel, channels);
        return Forms(forms);
    }

private:
    PyActivations(const Shape& shape, std::int64_t groups, DType dtype, Format layout)
        : tensor_{.images = shape.at(0),
                  .height = shape.at(2),
                  .width = shape.at(3),
                  .blocks = channel_blocks(groups, shape.at(1) / groups),
                  .dtype = dtype},
          layout_(layout),
          forms_(table({"packed"}, {"relu_mask"}, {})) {}

    TensorForm form(const char* name) const {
        return activation_form(name,
                               {{{'n', tensor_.images},
                                 {'g', tensor_.blocks.groups},
                                 {'c', tensor_.blocks.channels},
                                 {'h', tensor_.height},
                                 {'w', tensor_.width}}},
                               tensor_.blocks, tensor_.dtype, layout_);
    }

    Activations tensor_;
    Format layout_;
    Forms forms_;
};

// Batch normalisation, a part of register_activation_layers().
void register_batch_norm(py::module_& module);

}  // namespace dlprim::bindings
