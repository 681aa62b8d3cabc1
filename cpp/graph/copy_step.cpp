#include "graph/copy_step.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "graph/network.h"
#include "primitives/reorder/reorder.h"

namespace dlprim {
namespace {

// Elements of more than four bytes are rows of words.
DType moved_type(std::int64_t element) {
    if (element == 1) return DType::u8;
    return element == 2 ? DType::bf16 : DType::s32;
}

Layout layout_of(const NetworkTensor& tensor) {
    Layout made{.dtype = moved_type(tensor.element)};
    const std::int64_t unit = size_of(made.dtype);
    const auto add = [&](std::int64_t extent, std::int64_t stride) {
        if (stride % unit != 0) {
            throw std::invalid_argument("a copy is of " + tensor.described() +
                                        ", expected strides of whole elements");
        }
        const char letter = static_cast<char>('A' + made.dimensions.size());
        made.dimensions.push_back(
            {.letter = letter, .extent = extent, .levels = {{extent, stride / unit}}});
    };
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) add(tensor.shape[i], tensor.strides[i]);
    if (tensor.element > unit) add(tensor.element / unit, unit);
    return made;
}

}  // namespace

NetworkStep copy_step(const Network& network, int src, int dst, std::string label) {
    const NetworkTensor &from = network.tensor(src), &to = network.tensor(dst);
    if (from.shape != to.shape || from.dtype != to.dtype || from.element != to.element) {
        throw std::invalid_argument("a copy is from " + from.described() + " to " + to.described() +
                                    ", expected one shape and type");
    }
    NetworkStep step{.kind = "copy", .label = std::move(label), .reads = {src}, .writes = {dst}};
    step.run = [src, dst, copy = std::make_shared<const Reorder>(layout_of(from), layout_of(to))](
                   const Addresses& at) { copy->run(at[src], at[dst]); };
    return step;
}

}  // namespace dlprim
