// Functions of whole arrays that are neither formulas nor products: what a network calls by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/network_step.h"

namespace dlprim {

class Network;

struct ArrayCall {
    std::string function = {};                   // of the table in function_step.cpp
    std::map<std::string, double> numbers = {};  // attributes
    std::vector<int> inputs = {}, outputs = {};  // dense values
};

using RunOfCall = std::function<void(const Addresses&)>;

// Throws std::invalid_argument for a function that is not there, or values that are not of its
// types and shapes.
NetworkStep function_step(const Network& network, const ArrayCall& call, std::string label);

// For functions: the attribute; a sentence on the values unless `fits`.
double number_of(const ArrayCall& call, const std::string& name);
void require_fit(bool fits, const Network& network, const ArrayCall& call,
                 const std::string& expected);

}  // namespace dlprim
