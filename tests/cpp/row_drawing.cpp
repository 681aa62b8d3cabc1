// Random row programs of all operations, operands and types.
#include <array>
#include <bit>

#include "row_problem.h"
#include "rows/row_builder.h"

namespace dlprim::testing {
namespace {

constexpr std::array kTypes = {DType::f32, DType::f32, DType::bf16,
                               DType::s8,  DType::u8,  DType::f16};
constexpr std::array kHalves = {DType::bf16, DType::f16};

class Drawing {
public:
    explicit Drawing(Draw& draw) : draw_(draw) {}

    RowProgram program() {
        if (draw_.once_in(5)) return listed_program();
        load_tensor();
        for (std::int64_t more = draw_.from(0, 3); more > 0; --more) load_another();
        for (std::int64_t steps = draw_.from(0, 12); steps > 0; --steps) step();
        for (std::int64_t stores = draw_.from(1, 3); stores > 0; --stores) store();
        if (draw_.once_in(2)) row_.fetch_ahead(2048);
        if (draw_.once_in(4)) row_.take_at_most(draw_.once_in(2) ? 1 : 2);
        return {row_.spec(), exact_results_};
    }

private:
    struct Known {
        RowValue value;
        bool exact;
        bool uniform;
    };

    // Steps on listed rows, what they carry, and steps on the last of that.
    RowProgram listed_program() {
        const bool has_places = draw_.once_in(3);
        const DType first = draw_.one_of(kTypes);
        load(has_places ? row_.listed_at_places(first, draw_.once_in(2) ? 4 : 8)
                        : row_.listed(first));
        if (has_places && draw_.once_in(2)) row_.fetch_ahead(draw_.once_in(2) ? 1 : 32);
        if (draw_.once_in(2)) load(row_.listed(draw_.one_of(kTypes)));
        if (!has_places && draw_.once_in(2)) know(row_.number(), true, true);
        if (!has_places && draw_.once_in(2)) know(row_.factor(), true, true);
        std::vector<RowValue> states;
        for (std::int64_t more = draw_.from(1, 3); more > 0; --more) {
            states.push_back(row_.carried(static_cast<float>(draw_.from(-8, 8)) / 4));
            know(states.back(), true, false);
        }
        load_lasting();
        for (std::int64_t steps = draw_.from(1, 6); steps > 0; --steps) on_each();
        if (draw_.once_in(2)) {
            const Known x = exact(), total = exact();
            const RowValue sum =
                row_.add_chosen(std::bit_cast<float>(0x03030303U), x.value, total.value + 0.0F);
            know(sum, true, false);
            exact_results_.push_back(true);
        }
        for (const RowValue state : states) {
            const Known next = exact();
            // Some have no part in what they were; one of these is a row as it was loaded.
            const RowValue other = draw_.once_in(2) ? known_.front().value : -next.value;
            row_.carry(state, draw_.once_in(3) ? other : larger(state, next.value));
        }
        known_.clear();
        for (const RowValue state : states) know(last(state), true, false);
        words_.assign(1, known_.front());
        if (draw_.once_in(2)) load_tensor();
        if (draw_.once_in(2)) load(row_.per_row(), true);
        for (std::int64_t steps = draw_.from(0, 4); steps > 0; --steps) on_each();
        for (std::int64_t stores = draw_.from(1, 3); stores > 0; --stores) {
            const Known it = any();
            row_.store(draw_.one_of(kTypes), it.value);
            exact_results_.push_back(it.exact);
        }
        return {row_.spec(), exact_results_};
    }

    void load_lasting() {
        if (draw_.once_in(2)) load(row_.column(draw_.one_of(kTypes)));
        if (draw_.once_in(2)) load(row_.scalar(), true);
    }

    void on_each() {
        switch (draw_.from(0, 3)) {
            case 0: return arithmetic();
            case 1: return unary();
            case 2: return choice();
            default: return product();
        }
    }

    void load(RowValue value, bool uniform = false) {
        known_.push_back({value, true, uniform});
        words_.push_back(known_.back());
        exact_results_.push_back(true);
    }

    void load_another() {
        switch (draw_.from(0, 7)) {
            case 7: return load_elsewhere();
            case 6: row_.fetch(draw_.one_of(kTypes)); return exact_results_.push_back(true);
            case 5: bits_.push_back(row_.bits()); return exact_results_.push_back(true);
            case 0: return load(row_.column(draw_.one_of(kTypes)));
            case 1: return load(row_.per_row(), true);
            case 2: return load(row_.scalar(), true);
            default: return load_tensor();
        }
    }

    // Of some the first element is known as well.
    void load_tensor() {
        const RowValue tensor = row_.tensor(draw_.one_of(kTypes));
        load(tensor);
        if (draw_.once_in(4)) know(row_.first(tensor), true, true);
    }

    // Two parts of one operand.
    void load_elsewhere() {
        const DType dtype = draw_.one_of(kTypes);
        const RowValue operand = draw_.once_in(3) ? row_.column(dtype) : row_.tensor(dtype);
        load(row_.at(operand, size_of(dtype) * draw_.from(1, 40)));
        know(row_.at(operand, size_of(dtype) * draw_.from(0, 40)), true, false);
    }

    Known any() {
        return known_[static_cast<std::size_t>(
            draw_.from(0, static_cast<std::int64_t>(known_.size()) - 1))];
    }

    Known exact() {
        Known it = any();
        while (!it.exact) it = any();
        return it;
    }

    void know(RowValue value, bool exact, bool uniform) {
        known_.push_back({value, exact, uniform});
    }

    void step() {
        switch (draw_.from(0, 10)) {
            case 10: return of_words();
            case 0: return product();
            case 1: return arithmetic();
            case 2: return arithmetic();
            case 3: return unary();
            case 4: return curve();
            case 5: return choice();
            case 6: return reduction();
            case 7: {
                const Known a = exact(), b = exact(), c = exact();
                return know(multiply_add(a.value, b.value, c.value), true,
                            a.uniform && b.uniform && c.uniform);
            }
            case 8: {
                const Known a = exact();
                const auto number = static_cast<float>(draw_.from(-8, 8)) / 4;
                return know(draw_.once_in(2) ? a.value - number : number - a.value, true,
                            a.uniform);
            }
            default: return know(row_.columns(), true, true);
        }
    }

    // Of what was loaded: the bits of a NaN that an operation makes are not told.
    void of_words() {
        const Known a = words(), b = words(), c = words();
        const bool uniform = a.uniform && b.uniform;
        switch (draw_.from(0, 4)) {
            case 0: return know_words(add_words(a.value, b.value), uniform);
            case 1: return know_words(low_product(a.value, b.value), uniform);
            case 2: return know_words(high_product(a.value, b.value), uniform);
            case 3:
                return know_words(exclusive_or(a.value, b.value, c.value), uniform && c.uniform);
            default: {
                const Known d = any();
                const RowCondition condition = words_at_least(a.value, b.value);
                know(select(condition, d.value, -d.value), d.exact, uniform && d.uniform);
            }
        }
    }

    Known words() {
        return words_[static_cast<std::size_t>(
            draw_.from(0, static_cast<std::int64_t>(words_.size()) - 1))];
    }

    void know_words(RowValue value, bool uniform) {
        words_.push_back({value, true, uniform});
        if (draw_.once_in(4)) know(value, true, uniform);
    }

    void product() {
        const Known a = any(), b = any();
        const RowValue value =
            draw_.once_in(3) ? a.value / (abs(b.value) + 1.5F) : a.value * b.value;
        know(value, a.exact && b.exact, a.uniform && b.uniform);
    }

    void arithmetic() {
        const Known a = exact(), b = exact();
        const bool uniform = a.uniform && b.uniform;
        switch (draw_.from(0, 3)) {
            case 0: return know(a.value + b.value, true, uniform);
            case 1: return know(a.value - b.value, true, uniform);
            case 2: return know(smaller(a.value, b.value), true, uniform);
            default: return know(larger(a.value, b.value), true, uniform);
        }
    }

    void unary() {
        const Known a = any();
        if (!bits_.empty() && draw_.once_in(2)) {
            return know(row_.gated(bits_.back(), a.value), a.exact, false);
        }
        switch (draw_.from(0, 4)) {
            case 0: return know(-a.value, a.exact, a.uniform);
            case 4: {
                const Known b = exact();
                return know(nearest(b.value), true, b.uniform);
            }
            case 3: {
                const Known b = exact();
                return know(rounded(draw_.one_of(kHalves), b.value), true, b.uniform);
            }
            case 1: return know(abs(a.value), a.exact, a.uniform);
            default: return know(sqrt(abs(a.value)), a.exact, a.uniform);
        }
    }

    void curve() {
        const Known a = exact();
        const bool bounded = draw_.once_in(2);
        const RowValue x = bounded ? smaller(a.value, 8.0F) : a.value;
        switch (draw_.from(0, 2)) {
            case 0: return know(exp(x), false, a.uniform);
            case 1: return know(log(x), false, a.uniform);
            default: {
                const auto kind =
                    static_cast<Activation>(draw_.from(1, std::ssize(kActivationNames) - 1));
                return know(activated(kind, x), kind == Activation::relu, a.uniform);
            }
        }
    }

    void choice() {
        const Known a = exact(), b = exact(), c = any(), d = any();
        const RowCondition condition = draw_.once_in(4)   ? beats(a.value, b.value)
                                       : draw_.once_in(3) ? a.value <= b.value
                                       : draw_.once_in(2) ? a.value < b.value
                                                          : a.value == b.value;
        const bool uniform = a.uniform && b.uniform && c.uniform && d.uniform;
        know(select(condition, c.value, d.value), c.exact && d.exact, uniform);
        if (draw_.once_in(3)) {
            know(select(condition, d.value, c.value), c.exact && d.exact, uniform);
        }
    }

    void reduction() {
        const Known a = any();
        switch (draw_.from(0, 3)) {
            case 0: return know(sum(abs(a.value)), false, true);
            case 3: {
                Known centre = any();
                if (!centre.uniform) centre = {row_.columns(), true, true};
                return know(sum_about(abs(a.value), -abs(centre.value)), false, true);
            }
            // Of zeros of both signs either is the highest; of a sum with 0 there is one.
            case 1: return know(highest(a.value) + 0.0F, a.exact, true);
            default: return know(lowest(a.value) + 0.0F, a.exact, true);
        }
    }

    void store() {
        const Known a = any();
        if (a.uniform && draw_.once_in(2)) {
            row_.store_per_row(a.value);
        } else if (draw_.once_in(6) && a.exact) {
            row_.store_bits(a.value);
        } else if (draw_.once_in(4) && a.exact) {
            const std::uint8_t sums = row_.result(RowShape::column, DType::f32);
            const std::int64_t offset = 4 * draw_.from(0, 40);
            for (std::int64_t times = draw_.from(1, 3); times > 0; --times) {
                row_.write(RowOp::add_to_column, sums, offset, a.value);
            }
        } else if (draw_.once_in(4)) {
            const DType dtype = draw_.one_of(kTypes);
            row_.write(RowOp::store, row_.result(RowShape::tensor, dtype),
                       size_of(dtype) * draw_.from(0, 40), a.value);
        } else {
            row_.store(draw_.one_of(kTypes), a.value);
        }
        exact_results_.push_back(a.exact);
    }

    Draw& draw_;
    RowBuilder row_;
    std::vector<Known> known_;
    std::vector<Known> words_;
    std::vector<std::uint8_t> bits_;
    std::vector<bool> exact_results_;
};

}  // namespace

RowProgram draw_row_program(Draw& draw) { return Drawing(draw).program(); }

}  // namespace dlprim::testing
