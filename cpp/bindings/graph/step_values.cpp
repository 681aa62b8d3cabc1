// The values of a step that is being made, checked as arrays of a call are.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "bindings/arrays/array.h"
#include "bindings/graph/network.h"

namespace dlprim::bindings {
namespace {

std::string shown(py::handle object) { return py::str(object); }

}  // namespace

StepValues::StepValues(PyNetwork& network, const char* kind, const std::string& label,
                       py::dict values)
    : network_(network),
      values_(std::move(values)),
      step_{.kind = kind, .label = network.label_or_number(label)} {
    numbers_.reserve(values_.size());
    for (const auto& [name, value] : values_) {
        numbers_.emplace_back(name.cast<std::string_view>(), value.cast<int>());
    }
}

void StepValues::refuse(const std::string& sentence) const {
    throw py::value_error("step " + step_.label + " (" + step_.kind + "): " + sentence);
}

int StepValues::number(const char* name) const {
    const auto found = std::find_if(numbers_.begin(), numbers_.end(),
                                    [&](const auto& it) { return it.first == name; });
    return found == numbers_.end() ? -1 : found->second;
}

const NetworkTensor& StepValues::tensor(const char* name) const {
    if (number(name) < 0) refuse(std::string(name) + " is missing, expected a value");
    return network_.core().tensor(number(name));
}

int StepValues::take(const char* name, const Expected& expected) {
    const NetworkTensor& tensor = this->tensor(name);
    // Bits of bfloat16 may come as what they are to NumPy.
    const bool has_type = tensor.dtype == name_of(expected.dtype) ||
                          (expected.dtype == DType::bf16 && tensor.dtype == "uint16");
    if (has_type && tensor.shape == expected.shape && tensor.is_dense()) return number(name);
    refuse(std::string(name) + " is " + tensor.described() +
           (tensor.is_dense() ? "" : " with gaps or in another order") + ", expected " +
           std::string(name_of(expected.dtype)) + " " + shown(tuple_of(expected.shape)) +
           " in C order");
}

int StepValues::operand(const char* name, const Expected& expected) {
    const int value = take(name, expected);
    const py::object& given = network_.packed_as(value);
    const py::object* const form = expected.packed_as;
    if (form != nullptr && given && !(*form && given.equal(*form))) {
        refuse(std::string(name) + " is packed as " + shown(given) + ", expected " +
               (*form ? shown(*form) : "a value that is not packed"));
    }
    step_.reads.push_back(value);
    return value;
}

int StepValues::result(const char* name, const Expected& expected,
                       std::initializer_list<int> replaced) {
    const int value = take(name, expected);
    step_.writes.push_back(value);
    std::copy_if(replaced.begin(), replaced.end(), std::back_inserter(step_.replaced),
                 [](int it) { return it >= 0; });
    network_.packed_as(value) = expected.packed_as == nullptr ? py::object() : *expected.packed_as;
    return value;
}

void StepValues::require_all_used() const {
    const auto given = static_cast<std::size_t>(std::count_if(
        numbers_.begin(), numbers_.end(), [](const auto& it) { return it.second >= 0; }));
    if (given == step_.reads.size() + step_.writes.size()) return;
    refuse("it was given " + shown(values_) + ", of which it does not take all");
}

}  // namespace dlprim::bindings
