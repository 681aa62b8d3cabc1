#include "primitives/formulas/define.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lang/check.h"
#include "lang/gradients/gradient.h"
#include "primitives/formulas/compiled_definition.h"

namespace dlprim {
namespace {

DType type_of(const Parameter& parameter) {
    if (parameter.type == "int8") return DType::s8;
    if (parameter.type == "uint8") return DType::u8;
    return parameter.type.find("int") == std::string::npos ? DType::f32 : DType::s32;
}

// Numbers and places are no reason for another type.
DType result_type(const std::vector<TensorView>& parameters) {
    std::vector<DType> types;
    for (const TensorView& it : parameters) {
        if (it.dtype != DType::s32 && !it.shape.empty()) types.push_back(it.dtype);
    }
    const auto all = [&](const auto& is) {
        return !types.empty() && std::all_of(types.begin(), types.end(), is);
    };
    if (all(is_int8)) return DType::s32;
    return all([](DType type) { return type == DType::bf16; }) ? DType::bf16 : DType::f32;
}

}  // namespace

CompiledLayer::CompiledLayer(std::shared_ptr<const CompiledDefinition> definition)
    : definition_(std::move(definition)) {}

const std::vector<TensorView>& CompiledLayer::results() const { return definition_->results(); }
double CompiledLayer::flops() const { return definition_->flops(); }
std::string CompiledLayer::described() const { return definition_->described(); }

void CompiledLayer::run(const std::vector<const void*>& parameters,
                        const std::vector<void*>& results) const {
    definition_->run(parameters, results);
}

Layer::Layer(Definition definition) : definition_(std::move(definition)) {}

std::vector<std::string> Layer::parameters() const {
    std::vector<std::string> names;
    for (const Parameter& it : definition_.parameters) names.push_back(it.name);
    return names;
}

CompiledLayer Layer::compile(const std::vector<Shape>& shapes, const Constants& sizes) const {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < std::min(shapes.size(), definition_.parameters.size()); ++i) {
        const Parameter& it = definition_.parameters[i];
        views.push_back(dense_view(it.name, type_of(it), shapes[i]));
    }
    return compile(views, sizes);
}

CompiledLayer Layer::compile(const std::vector<TensorView>& parameters,
                             const Constants& sizes) const {
    if (parameters.size() != definition_.parameters.size()) {
        throw std::invalid_argument(definition_.name + " was given " +
                                    std::to_string(parameters.size()) + " arrays, expected " +
                                    std::to_string(definition_.parameters.size()));
    }
    CompiledDefinition::Arrays arrays{.parameters = parameters, .given = sizes};
    arrays.result_type = result_type(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        arrays.parameters[i].name = definition_.parameters[i].name;
    }
    return CompiledLayer(std::make_shared<const CompiledDefinition>(definition_, arrays));
}

Layer Layer::gradient(const std::string& parameter) const {
    return Layer(gradient_of(definition_, parameter));
}

std::map<std::string, Layer> define(std::string_view text) {
    std::map<std::string, Layer> layers;
    for (Definition& it : checked_definitions(text)) {
        const std::string name = it.name;
        layers.emplace(name, Layer(std::move(it)));
    }
    return layers;
}

}  // namespace dlprim
