// Layers from their formulas, in C++: the text is parsed once, compiled for the arrays that a layer
// will be called on, and then called with no more than their addresses.
//
//   const auto layers = define("def fc(float(N,C) x, float(K,C) w) -> (y) {"
//                              "    y(n,k) +=! x(n,c) * w(k,c) }");
//   const CompiledLayer fc = layers.at("fc").compile({{8, 64}, {32, 64}});
//   fc.run({x, w}, {y});
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "primitives/tensor/tensor_view.h"

namespace dlprim {

class CompiledDefinition;

class CompiledLayer {
public:
    explicit CompiledLayer(std::shared_ptr<const CompiledDefinition> definition);

    // Dense.
    const std::vector<TensorView>& results() const;
    double flops() const;

    // First elements of the arrays; a result shares no memory with a parameter. May be called by
    // several threads at once. The same bits for any number of threads of a call. Throws
    // std::out_of_range where a place that is read lies outside, before anything is written.
    void run(const std::vector<const void*>& parameters, const std::vector<void*>& results) const;

    // For every statement what runs it.
    std::string described() const;

private:
    std::shared_ptr<const CompiledDefinition> definition_;
};

class Layer {
public:
    explicit Layer(Definition definition);

    const std::string& name() const { return definition_.name; }
    std::vector<std::string> parameters() const;
    const std::vector<std::string>& returns() const { return definition_.returns; }

    // For dense arrays, of float32 but for integers, or for arrays as these say; `sizes` are what
    // the arrays do not say. Results are float32, bfloat16 where all parameters are, and int32
    // where all are 8-bit. Throws std::invalid_argument, a sentence.
    CompiledLayer compile(const std::vector<Shape>& shapes, const Constants& sizes = {}) const;
    CompiledLayer compile(const std::vector<TensorView>& parameters,
                          const Constants& sizes = {}) const;

    // With respect to a parameter: called on the parameters, then on the gradients of all results.
    Layer gradient(const std::string& parameter) const;

private:
    Definition definition_;
};

// The layers of a text, by name. Throws std::invalid_argument that quotes the line and marks the
// place where the text makes no sense.
std::map<std::string, Layer> define(std::string_view text);

}  // namespace dlprim
