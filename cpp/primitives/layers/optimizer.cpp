#include "primitives/layers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <stdexcept>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// A multiple of every vector, so that only ends of parameters are ragged.
constexpr std::int64_t kTaskElements = 16 * 1024;

}  // namespace

UpdateRule update_rule(const std::string& name) {
    static const std::map<std::string, UpdateRule> known{
        {"sgd", {UpdateKind::sgd, false}},   {"nesterov", {UpdateKind::sgd, true}},
        {"adam", {UpdateKind::adam, false}}, {"adamw", {UpdateKind::adam, true}},
        {"lamb", {UpdateKind::lamb, false}}, {"rmsprop", {UpdateKind::rmsprop, false}}};
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    throw std::invalid_argument("an update is called '" + name +
                                "', expected sgd, nesterov, adam, adamw, lamb or rmsprop");
}

enum class Update::Field : std::uint8_t {
    weights,
    gradient,
    first,
    second,
    third,
    copy,
    scale,
    weight_squares,
    step_squares,
    minus_rate,
    momentum,
    weight_decay,
    decay,
    beta1,
    rest1,
    beta2,
    rest2,
    epsilon,
    first_scale,
    root_scale
};

// What the operands of programs are that are no arrays, of one parameter in one step.
struct Update::Numbers {
    float minus_rate = 0;
    float momentum = 0;
    float weight_decay = 0;
    float decay = 1;  // of weights, in front of a step
    float beta1 = 0;
    float rest1 = 1;  // 1 - beta1, rounded once
    float beta2 = 0;
    float rest2 = 1;
    float epsilon = 0;
    float first_scale = 1;  // what the bias of moments is corrected by
    float root_scale = 1;

    Numbers(const UpdateRule& rule, const double* settings, const ParameterState& it)
        : minus_rate(rounded_once(-settings[0])) {
        if (rule.kind == UpdateKind::sgd) {
            momentum = rounded_once(settings[1]);
            weight_decay = rounded_once(settings[2]);
        } else if (rule.kind == UpdateKind::rmsprop) {
            beta2 = rounded_once(settings[1]);
            rest2 = rounded_once(1 - settings[1]);
            epsilon = rounded_once(settings[2]);
            weight_decay = rounded_once(settings[3]);
            momentum = rounded_once(settings[4]);
        } else {
            take_moments(rule, settings, static_cast<double>(it.steps));
        }
    }

private:
    void take_moments(const UpdateRule& rule, const double* settings, double steps) {
        const double rate = settings[0], first = settings[1], second = settings[2];
        beta1 = rounded_once(first);
        rest1 = rounded_once(1 - first);
        beta2 = rounded_once(second);
        rest2 = rounded_once(1 - second);
        epsilon = rounded_once(settings[3]);
        weight_decay = rounded_once(settings[4]);
        decay = rounded_once(1 - rate * settings[4]);
        const double corrected = 1 - std::pow(first, steps);
        first_scale = rounded_once(1 / corrected);
        root_scale = rounded_once(1 / std::sqrt(1 - std::pow(second, steps)));
        if (rule.kind == UpdateKind::adam) minus_rate = rounded_once(-(rate / corrected));
    }
};

// A step as a row program, and what its operands are.
class Update::Writer {
public:
    Writer(const UpdateRule& rule, const ParameterState& it) : rule_(rule), it_(it) {}

    Program step() {
        switch (rule_.kind) {
            case UpdateKind::sgd: write_sgd(); break;
            case UpdateKind::adam: write_adam(); break;
            case UpdateKind::lamb: write_lamb(); break;
            case UpdateKind::rmsprop: write_rmsprop(); break;
        }
        return written();
    }

    Program measure() {
        const RowValue weights = read(Field::weights);
        const auto [mean, square] = moments(gradient());
        const RowValue towards = direction(weights, mean, square);
        write_per_row(Field::weight_squares, sum(weights * weights));
        write_per_row(Field::step_squares, sum(towards * towards));
        return written();
    }

private:
    struct Moments {
        RowValue mean;
        RowValue square;
    };

    Program written() {
        Program made{fields_, row_kernel(row_.spec())};
        if (made.kernel->scratch_floats(kTaskElements) != 0) {
            throw std::logic_error("an update takes scratch, expected one pass over its row");
        }
        return made;
    }
    RowValue read(Field field) {
        fields_.push_back(field);
        return row_.tensor(it_.dtype);
    }
    RowValue number(Field field) {
        fields_.push_back(field);
        return row_.scalar();
    }
    void write(Field field, RowValue value) {
        fields_.push_back(field);
        row_.store(field == Field::copy ? DType::bf16 : it_.dtype, value);
    }
    void write_per_row(Field field, RowValue value) {
        fields_.push_back(field);
        row_.store_per_row(value);
    }
    RowValue gradient() {
        const RowValue given = read(Field::gradient);
        return given * number(Field::scale);
    }
    RowValue penalised(RowValue weights) {
        const RowValue slope = gradient();
        return multiply_add(number(Field::weight_decay), weights, slope);
    }
    void write_result(RowValue result) {
        write(Field::weights, result);
        if (it_.copy != nullptr) write(Field::copy, result);
    }
    void write_moved(RowValue slope, RowValue weights) {
        write_result(multiply_add(number(Field::minus_rate), slope, weights));
    }

    void write_sgd() {
        const RowValue weights = read(Field::weights);
        RowValue slope = penalised(weights);
        if (it_.first != nullptr) {
            const RowValue momentum = number(Field::momentum);
            const RowValue velocity = multiply_add(momentum, read(Field::first), slope);
            write(Field::first, velocity);
            slope = rule_.is_variant ? multiply_add(momentum, velocity, slope) : velocity;
        }
        write_moved(slope, weights);
    }

    Moments moments(RowValue slope) {
        const RowValue first = read(Field::first), second = read(Field::second);
        const RowValue beta1 = number(Field::beta1), share = number(Field::rest1) * slope;
        const RowValue mean = multiply_add(beta1, first, share);
        const RowValue beta2 = number(Field::beta2);
        const RowValue shares = number(Field::rest2) * slope * slope;
        const RowValue square = multiply_add(beta2, second, shares);
        write(Field::first, mean);
        write(Field::second, square);
        return {mean, square};
    }

    RowValue root(RowValue square) {
        const RowValue scale = number(Field::root_scale);
        return multiply_add(sqrt(square), scale, number(Field::epsilon));
    }

    RowValue highest(RowValue square) {
        if (it_.third == nullptr) return square;
        const RowValue most = larger(read(Field::third), square);
        write(Field::third, most);
        return most;
    }

    void write_adam() {
        RowValue weights = read(Field::weights);
        const auto [mean, square] = moments(rule_.is_variant ? gradient() : penalised(weights));
        const RowValue slope = mean / root(highest(square));
        if (rule_.is_variant) weights = weights * number(Field::decay);
        write_moved(slope, weights);
    }

    RowValue direction(RowValue weights, RowValue mean, RowValue square) {
        const RowValue slope = mean * number(Field::first_scale) / root(square);
        return multiply_add(number(Field::weight_decay), weights, slope);
    }

    void write_lamb() {
        const RowValue weights = read(Field::weights);
        const RowValue mean = read(Field::first), square = read(Field::second);
        write_moved(direction(weights, mean, square), weights);
    }

    void write_rmsprop() {
        const RowValue weights = read(Field::weights);
        RowValue slope = penalised(weights);
        const RowValue alpha = number(Field::beta2);
        const RowValue share = number(Field::rest2) * slope;
        const RowValue square = multiply_add(alpha, read(Field::second), share * slope);
        write(Field::second, square);
        RowValue variance = square;
        if (it_.third != nullptr) {
            const RowValue mean = multiply_add(alpha, read(Field::third), share);
            write(Field::third, mean);
            // Of gradients that are alike rounding may leave less than nothing.
            variance = larger(0.0F, multiply_add(-mean, mean, square));
        }
        slope = slope / (sqrt(variance) + number(Field::epsilon));
        if (it_.first != nullptr) {
            slope = multiply_add(number(Field::momentum), read(Field::first), slope);
            write(Field::first, slope);
        }
        write_moved(slope, weights);
    }

    UpdateRule rule_;
    const ParameterState& it_;
    RowBuilder row_;
    std::vector<Field> fields_;
};

std::size_t Update::index_of(const ParameterState& it) {
    return (it.dtype == DType::bf16 ? 8U : 0U) + (it.third != nullptr ? 4U : 0U) +
           (it.first != nullptr ? 2U : 0U) + (it.copy != nullptr ? 1U : 0U);
}

Update::Update(const UpdateRule& rule, std::span<const ParameterState> parameters) : rule_(rule) {
    for (const ParameterState& it : parameters) {
        Program& program = programs_[index_of(it)];
        if (program.kernel == nullptr) {
            program = Writer(rule, it).step();
            if (rule.kind == UpdateKind::lamb) measures_[index_of(it)] = Writer(rule, it).measure();
        }
        first_task_.push_back(first_task_.back() + Blocks{it.count, kTaskElements}.count());
    }
}

// Some elements of a parameter.
struct Update::Part {
    const ParameterState& it;
    Range range;
    const Numbers& numbers;
    float* sums = nullptr;  // of squares of weights and of steps

    const void* data(Field field) const {
        switch (field) {
            case Field::weights: return part_of(it.weights);
            case Field::gradient: return part_of(it.gradient);
            case Field::first: return part_of(it.first);
            case Field::second: return part_of(it.second);
            case Field::third: return part_of(it.third);
            case Field::copy: return it.copy + range.begin;
            case Field::scale: return &it.scale;
            case Field::weight_squares: return sums;
            case Field::step_squares: return sums + 1;
            case Field::minus_rate: return &numbers.minus_rate;
            case Field::momentum: return &numbers.momentum;
            case Field::weight_decay: return &numbers.weight_decay;
            case Field::decay: return &numbers.decay;
            case Field::beta1: return &numbers.beta1;
            case Field::rest1: return &numbers.rest1;
            case Field::beta2: return &numbers.beta2;
            case Field::rest2: return &numbers.rest2;
            case Field::epsilon: return &numbers.epsilon;
            case Field::first_scale: return &numbers.first_scale;
            case Field::root_scale: break;
        }
        return &numbers.root_scale;
    }

    const void* part_of(const void* array) const {
        return static_cast<const char*>(array) + range.begin * size_of(it.dtype);
    }

    void run(const Program& program) const {
        RowArgs args;
        args.rows = 1;
        args.columns = range.size();
        for (std::size_t i = 0; i < program.fields.size(); ++i) {
            args.operands.at(i).data = const_cast<void*>(data(program.fields[i]));
        }
        (*program.kernel)(args);
    }
};

template <class Body>
void Update::for_parts(std::span<const ParameterState> parameters, const Body& body) const {
    parallel_for(first_task_.back(), [&](std::int64_t task) {
        const auto after = std::upper_bound(first_task_.begin(), first_task_.end(), task);
        const auto index = static_cast<std::size_t>(after - first_task_.begin()) - 1;
        const Blocks blocks{parameters[index].count, kTaskElements};
        body(index, blocks.at(task - first_task_[index]), task);
    });
}

void Update::run(const double* settings, std::span<const ParameterState> parameters) const {
    if (rule_.kind == UpdateKind::lamb) return run_lamb(settings, parameters);
    for_parts(parameters, [&](std::size_t index, const Range& range, std::int64_t) {
        const ParameterState& it = parameters[index];
        const Numbers numbers(rule_, settings, it);
        Part{it, range, numbers}.run(programs_[index_of(it)]);
    });
}

// Two sums for each part; then the first one of a parameter is how much longer its weights are than
// its step.
void Update::run_lamb(const double* settings, std::span<const ParameterState> parameters) const {
    const std::int64_t bytes = 2 * first_task_.back() * static_cast<std::int64_t>(sizeof(float));
    const WorkspacePool::Lease own(WorkspacePool::lasting(), bytes);
    auto* const sums = reinterpret_cast<float*>(own.data());
    for_parts(parameters, [&](std::size_t index, const Range& range, std::int64_t task) {
        const ParameterState& it = parameters[index];
        const Numbers numbers(rule_, settings, it);
        Part{it, range, numbers, sums + 2 * task}.run(measures_[index_of(it)]);
    });
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        double weights = 0, step = 0;
        for (std::int64_t task = first_task_[index]; task < first_task_[index + 1]; ++task) {
            weights += static_cast<double>(sums[2 * task]);
            step += static_cast<double>(sums[2 * task + 1]);
        }
        const bool is_usual = weights == 0 || step == 0;
        if (parameters[index].count > 0) {
            sums[2 * first_task_[index]] =
                is_usual ? 1.0F : rounded_once(std::sqrt(weights / step));
        }
    }
    for_parts(parameters, [&](std::size_t index, const Range& range, std::int64_t) {
        const ParameterState& it = parameters[index];
        Numbers numbers(rule_, settings, it);
        numbers.minus_rate *= sums[2 * first_task_[index]];
        Part{it, range, numbers}.run(programs_[index_of(it)]);
    });
}

}  // namespace dlprim
