#include "primitives/layers/optimizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

// A multiple of every vector, so that only ends of parameters are ragged.
constexpr std::int64_t kTaskElements = 16 * 1024;

enum class Field : std::uint8_t {
    weights,
    gradient,
    first,
    second,
    third,
    copy,
    minus_step_size,
    root_scale,
    number
};

// A step as a row program, and what its operands are: arrays of a parameter, and numbers.
class StepProgram {
public:
    RowValue read(Field field) {
        fields_.push_back(field);
        return row_.tensor(DType::f32);
    }
    RowValue number_of(Field field) {
        fields_.push_back(field);
        return row_.scalar();
    }
    RowValue number(float value) {
        fields_.push_back(Field::number);
        numbers_.push_back(value);
        return row_.scalar();
    }
    void write(Field field, RowValue value) {
        fields_.push_back(field);
        row_.store(field == Field::copy ? DType::bf16 : DType::f32, value);
    }
    void finish() { kernel_ = row_kernel(row_.spec()); }
    bool is_finished() const { return kernel_ != nullptr; }

    void run(const ParameterState& it, Range range) const {
        RowArgs args{.rows = 1, .columns = range.size()};
        auto number = numbers_.begin();
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            const bool is_number = fields_[i] == Field::number;
            const void* const data = is_number ? &*number++ : at(it, fields_[i], range.begin);
            args.operands.at(i).data = const_cast<void*>(data);
        }
        (*kernel_)(args);
    }

private:
    static const void* at(const ParameterState& it, Field field, std::int64_t element) {
        switch (field) {
            case Field::weights: return it.weights + element;
            case Field::gradient: return it.gradient + element;
            case Field::first: return it.first + element;
            case Field::second: return it.second + element;
            case Field::third: return it.third + element;
            case Field::minus_step_size: return &it.minus_step_size;
            case Field::root_scale: return &it.root_scale;
            default: return it.copy + element;
        }
    }

    RowBuilder row_;
    std::vector<Field> fields_;
    std::vector<float> numbers_;
    std::shared_ptr<const RowKernel> kernel_;
};

void write_result(StepProgram& program, const ParameterState& it, RowValue result) {
    program.write(Field::weights, result);
    if (it.copy != nullptr) program.write(Field::copy, result);
}

void write(StepProgram& program, const SgdStep& step, const ParameterState& it) {
    const RowValue weights = program.read(Field::weights);
    RowValue slope =
        multiply_add(program.number(step.weight_decay), weights, program.read(Field::gradient));
    if (it.first != nullptr) {
        const RowValue momentum = program.number(step.momentum);
        const RowValue velocity = multiply_add(momentum, program.read(Field::first), slope);
        program.write(Field::first, velocity);
        slope = step.nesterov ? multiply_add(momentum, velocity, slope) : velocity;
    }
    write_result(program, it, multiply_add(program.number(-step.learning_rate), slope, weights));
}

void write(StepProgram& program, const AdamStep& step, const ParameterState& it) {
    const RowValue weights = program.read(Field::weights);
    RowValue gradient = program.read(Field::gradient);
    if (step.penalty != 0) {
        gradient = multiply_add(program.number(step.penalty), weights, gradient);
    }
    const RowValue mean = multiply_add(program.number(step.beta1), program.read(Field::first),
                                       program.number(step.rest1) * gradient);
    const RowValue square = multiply_add(program.number(step.beta2), program.read(Field::second),
                                         program.number(step.rest2) * gradient * gradient);
    program.write(Field::first, mean);
    program.write(Field::second, square);
    const RowValue root = multiply_add(sqrt(square), program.number_of(Field::root_scale),
                                       program.number(step.epsilon));
    const RowValue decayed = weights * program.number(step.decay);
    const RowValue minus_size = program.number_of(Field::minus_step_size);
    write_result(program, it, multiply_add(minus_size, mean / root, decayed));
}

void write(StepProgram& program, const RmspropStep& step, const ParameterState& it) {
    const RowValue weights = program.read(Field::weights);
    const RowValue gradient =
        multiply_add(program.number(step.weight_decay), weights, program.read(Field::gradient));
    const RowValue alpha = program.number(step.alpha);
    const RowValue share = program.number(step.rest) * gradient;
    const RowValue square = multiply_add(alpha, program.read(Field::second), share * gradient);
    program.write(Field::second, square);
    RowValue variance = square;
    if (it.third != nullptr) {
        const RowValue mean = multiply_add(alpha, program.read(Field::third), share);
        program.write(Field::third, mean);
        // Of gradients that are alike rounding may leave less than nothing.
        variance = larger(0.0F, multiply_add(-mean, mean, square));
    }
    RowValue slope = gradient / (sqrt(variance) + program.number(step.epsilon));
    if (it.first != nullptr) {
        slope = multiply_add(program.number(step.momentum), program.read(Field::first), slope);
        program.write(Field::first, slope);
    }
    write_result(program, it, multiply_add(program.number(-step.learning_rate), slope, weights));
}

// Programs of a step: with and without the states that not all steps have, and a copy.
template <class Step>
class Programs {
public:
    Programs(const Step& step, const std::vector<ParameterState>& parameters) {
        for (const ParameterState& it : parameters) {
            StepProgram& program = all_[index_of(it)];
            if (program.is_finished()) continue;
            write(program, step, it);
            program.finish();
        }
    }

    const StepProgram& of(const ParameterState& it) const { return all_[index_of(it)]; }

private:
    static std::size_t index_of(const ParameterState& it) {
        return (it.third != nullptr ? 4U : 0U) + (it.first != nullptr ? 2U : 0U) +
               (it.copy != nullptr ? 1U : 0U);
    }

    std::array<StepProgram, 8> all_;
};

template <class Step>
void run(const Step& step, const std::vector<ParameterState>& parameters) {
    const Programs<Step> programs(step, parameters);
    // The first task of every parameter, and behind them the number of all tasks.
    std::vector<std::int64_t> first_task{0};
    for (const ParameterState& it : parameters) {
        first_task.push_back(first_task.back() + Blocks{it.count, kTaskElements}.count());
    }
    parallel_for(first_task.back(), [&](std::int64_t task) {
        const auto after = std::upper_bound(first_task.begin(), first_task.end(), task);
        const auto index = static_cast<std::size_t>(after - first_task.begin()) - 1;
        const ParameterState& it = parameters[index];
        const Blocks blocks{it.count, kTaskElements};
        programs.of(it).run(it, blocks.at(task - first_task[index]));
    });
}

}  // namespace

void run_step(const SgdStep& step, const std::vector<ParameterState>& parameters) {
    run(step, parameters);
}
void run_step(const AdamStep& step, const std::vector<ParameterState>& parameters) {
    run(step, parameters);
}
void run_step(const RmspropStep& step, const std::vector<ParameterState>& parameters) {
    run(step, parameters);
}

}  // namespace dlprim
