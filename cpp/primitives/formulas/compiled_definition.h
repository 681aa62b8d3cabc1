// A definition for arrays of known shapes and strides: a list of steps, each a product of matrices
// or a statement of the row engine, and where between them results lie. Nothing is parsed, planned
// or generated when it is called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lang/check.h"
#include "lang/definition.h"
#include "lang/ranges.h"
#include "primitives/formulas/product_chain.h"
#include "primitives/formulas/product_pass.h"
#include "primitives/formulas/row_statement.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

// An array; strides in elements.
struct TensorView {
    std::string name = {};
    DType dtype = DType::f32;
    Shape shape = {};
    std::vector<std::int64_t> strides = {};
};

// The first and the last place along a dimension that is read.
struct PlaceRange {
    std::int64_t first = 0;
    std::int64_t last = 0;
};

TensorView dense_view(std::string name, DType dtype, const Shape& shape);

class CompiledDefinition {
public:
    // What is known besides the definition: its parameters in their order, shapes of results that
    // it adds to or reads (of others they are not looked at), `given` as ranges_of() has it.
    // Results are dense.
    struct Arrays {
        std::vector<TensorView> parameters = {};
        Shapes results = {};
        Constants given = {};
        DType result_type = DType::f32;
    };

    // Throws std::invalid_argument for what cannot be compiled, as a sentence.
    CompiledDefinition(Definition definition, const Arrays& arrays);

    const std::vector<TensorView>& results() const { return results_; }
    // Whether a result's array is read: the definition adds to it, or reads it before it is
    // written.
    bool is_in_out(std::size_t result) const;
    double flops() const { return flops_; }

    // First elements of the arrays; a result shares no memory with a parameter. May be called by
    // several threads at once. The same bits for any number of threads of a call.
    void run(const std::vector<const void*>& parameters, const std::vector<void*>& results) const;

    // For every statement what runs it.
    std::string described() const;

private:
    // Where an array is: a parameter, a result, or scratch of that many bytes from its first one.
    struct Place {
        enum class Of : std::uint8_t { parameter, result, scratch };

        Of of = Of::scratch;
        std::int64_t number = 0;
    };
    struct Step {
        std::variant<std::shared_ptr<const ProductPass>, RowStatement> what;
        std::vector<Place> operands = {};
        Place result = {};
        std::int64_t zeroed_bytes = 0;  // of the result, before it is written
        int statement = 0;
    };
    struct Array {
        TensorView view = {};
        Place place = {};
    };

    void add_statement(int number);
    void add_step(const ChainStep& link, const std::vector<Place>& operands, const Place& result,
                  int number);
    Place scratch(std::int64_t bytes);
    const Array& array_of(const std::string& name) const;
    // A copy of what an access reads, with zeros where that is outside the array: from the first
    // to the last place of every dimension.
    Array padded(const Array& array, const std::vector<PlaceRange>& places, int number);

    class Binding;

    Definition definition_;
    Symbols symbols_;
    Ranges ranges_;
    std::vector<Array> arrays_;
    std::vector<TensorView> results_;
    std::vector<std::shared_ptr<const Step>> steps_;
    std::int64_t scratch_bytes_ = 0;
    double flops_ = 0;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
