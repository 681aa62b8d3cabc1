#include "primitives/statements/fused_rows.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "primitives/statements/program_passes.h"
#include "primitives/statements/row_choice.h"
#include "primitives/statements/row_expression.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

using Access = FusedRows::Access;

constexpr std::size_t kNone = PassRoles::kNone;
constexpr int kMostSums = 4;  // of one pass, which have a register each

bool names_an_index(const Expression& value) {
    return value.kind == Expression::Kind::name ||
           std::any_of(value.operands.begin(), value.operands.end(), names_an_index);
}

// What a statement is on rows: for every element, of all elements of a row, once for a row, or of
// all rows.
enum class Kind : std::uint8_t { map, sum, single, down };

// A statement on the indices of all.
struct Part {
    const FusedStatement* of = nullptr;
    std::vector<std::size_t> indices = {};  // of all, for each of its own; kNone where it is one
    Kind kind = Kind::map;
    // For each operand: the statement that makes it, or kNone and which of what is read it is.
    std::vector<std::size_t> made_by = {};
    std::vector<std::size_t> read = {};
};

// An operand of the program, on the indices of all.
struct Place {
    BoundOperand it = {};
    std::size_t array = 0;
    Access access = {};
};

class Fusion {
public:
    explicit Fusion(const std::vector<FusedStatement>& statements) {
        for (const FusedStatement& it : statements) parts_.push_back({.of = &it});
    }

    // If so, all else is there.
    bool fits() {
        for (Part& part : parts_) {
            if (!is_possible(part)) return false;
            add_indices(part);
        }
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            if (!place_operands(i) || !place_result(i)) return false;
        }
        if (writes_.empty() || !choose_kinds() || !choose_roles()) return false;
        if (std::ssize(all_.operands) > kMostRowOperands) return false;
        spec_ = program();
        return is_small() && !overwrites_early() && most_sums(spec_) <= kMostSums && is_cheaper();
    }

    const RowSpec& spec() const { return spec_; }
    // Its operands are those of the program.
    const BoundStatement& all() const { return all_; }
    const PassRoles& roles() const { return roles_; }

    std::vector<Access> accesses() const {
        std::vector<Access> made;
        for (const Place& it : reads_) made.push_back(it.access);
        for (const Place& it : writes_) made.push_back(it.access);
        return made;
    }

    // Operands that begin with zeros: sums of all rows.
    std::vector<FusedRows::Zeroed> zeroed() const {
        std::vector<FusedRows::Zeroed> made;
        for (std::size_t i = 0; i < writes_.size(); ++i) {
            if (kind_of(writes_[i]) != Kind::down) continue;
            const BoundOperand& it = all_.operands[reads_.size() + i];
            const std::int64_t bytes = size_of(it.dtype);
            made.push_back(
                {reads_.size() + i, it.offset * bytes, all_.indices[roles_.column].extent * bytes});
        }
        return made;
    }

private:
    static bool is_possible(const Part& part) {
        const BoundStatement& it = part.of->it;
        const auto is_integer = [](const BoundOperand& of) { return of.dtype == DType::s32; };
        const bool is_known = !is_integer(it.result) && !it.operands.empty() &&
                              !names_an_index(it.value) &&
                              std::none_of(it.operands.begin(), it.operands.end(), is_integer);
        const bool joins = it.reduction != Reduction::none;
        return is_known && extent_of(it, false) > 0 && extent_of(it, true) > 0 &&
               it.reduction != Reduction::product && (!joins || it.initializes);
    }

    // Indices are the same where they have one name, else where they go equally far: what a
    // statement calls an index is nothing to the others.
    void add_indices(Part& part) {
        const std::vector<IndexRange>& own = part.of->it.indices;
        part.indices.assign(own.size(), kNone);
        for (const bool by_name : {true, false}) {
            for (std::size_t i = 0; i < own.size(); ++i) {
                for (std::size_t k = 0; k < all_.indices.size(); ++k) {
                    const bool is_free = std::find(part.indices.begin(), part.indices.end(), k) ==
                                         part.indices.end();
                    const bool is_same = own[i].extent == all_.indices[k].extent &&
                                         (!by_name || own[i].name == all_.indices[k].name);
                    if (part.indices[i] == kNone && is_free && is_same) part.indices[i] = k;
                }
            }
        }
        for (std::size_t i = 0; i < own.size(); ++i) {
            if (own[i].extent == 1 || part.indices[i] != kNone) continue;
            part.indices[i] = all_.indices.size();
            all_.indices.push_back({.name = own[i].name, .extent = own[i].extent});
        }
    }

    BoundOperand on_all(const Part& part, const BoundOperand& operand) const {
        BoundOperand made{.dtype = operand.dtype, .offset = operand.offset};
        made.strides.assign(all_.indices.size(), 0);
        for (std::size_t i = 0; i < part.indices.size(); ++i) {
            if (part.indices[i] != kNone) made.strides[part.indices[i]] = operand.strides[i];
        }
        return made;
    }

    // The last statement in front that writes the array.
    std::size_t maker_of(std::size_t array, std::size_t statement) const {
        while (statement-- > 0) {
            if (parts_[statement].of->result == array) return statement;
        }
        return kNone;
    }

    // What is made by the statements has to be read where it is written. Bytes are what they are
    // when they are stored.
    bool place_operands(std::size_t statement) {
        Part& part = parts_[statement];
        const FusedStatement& of = *part.of;
        for (std::size_t i = 0; i < of.operands.size(); ++i) {
            const BoundOperand place = on_all(part, of.it.operands[i]);
            const std::size_t maker = maker_of(of.operands[i], statement);
            part.made_by.push_back(maker);
            if (maker != kNone) {
                const Part& by = parts_[maker];
                const bool is_value = place == on_all(by, by.of->it.result);
                if (!is_value || is_int8(place.dtype)) return false;
                part.read.push_back(kNone);
                continue;
            }
            const auto found = std::find_if(reads_.begin(), reads_.end(), [&](const Place& it) {
                return it.array == of.operands[i] && it.it == place;
            });
            part.read.push_back(static_cast<std::size_t>(found - reads_.begin()));
            if (found == reads_.end()) reads_.push_back({place, of.operands[i], {statement, i}});
        }
        return true;
    }

    // Of several statements that write an array the last one does. It is read nowhere else.
    bool place_result(std::size_t statement) {
        const Part& part = parts_[statement];
        const Place made{on_all(part, part.of->it.result), part.of->result, {statement}};
        const auto is_it = [&](const Place& it) { return it.array == made.array; };
        const auto is_elsewhere = [&](const Place& it) { return is_it(it) && it.it != made.it; };
        if (std::any_of(reads_.begin(), reads_.end(), is_elsewhere)) return false;
        if (std::any_of(writes_.begin(), writes_.end(), is_elsewhere)) return false;
        std::erase_if(writes_, is_it);
        if (part.of->is_stored) writes_.push_back(made);
        return true;
    }

    bool has(const Part& part, std::size_t index, bool reduced) const {
        for (std::size_t i = 0; i < part.indices.size(); ++i) {
            if (part.indices[i] == index && part.of->it.indices[i].reduced == reduced) return true;
        }
        return false;
    }

    // The columns are what not every result has; of these a statement has all, as one kind or the
    // other, or none.
    bool choose_kinds() {
        std::int64_t columns = 0;
        for (std::size_t index = 0; index < all_.indices.size(); ++index) {
            IndexRange& it = all_.indices[index];
            it.reduced = !std::all_of(parts_.begin(), parts_.end(),
                                      [&](const Part& part) { return has(part, index, false); });
            columns += it.reduced ? 1 : 0;
        }
        for (Part& part : parts_) {
            std::int64_t mapped = 0, summed = 0;
            for (std::size_t index = 0; index < all_.indices.size(); ++index) {
                if (!all_.indices[index].reduced) continue;
                mapped += has(part, index, false) ? 1 : 0;
                summed += has(part, index, true) ? 1 : 0;
            }
            const bool is_map = mapped == columns, is_sum = summed == columns;
            if (!is_map && !is_sum && mapped + summed > 0) return false;
            part.kind = is_map ? Kind::map : is_sum ? Kind::sum : Kind::single;
        }
        return true;
    }

    // The columns as one index along which all operands are neighbours, or the same.
    bool choose_roles() {
        for (const Place& it : reads_) all_.operands.push_back(it.it);
        for (const Place& it : writes_) all_.operands.push_back(it.it);
        all_.result = writes_.back().it;
        simplify(all_);
        for (std::size_t i = 0; i < all_.indices.size(); ++i) {
            if (!all_.indices[i].reduced) continue;
            if (roles_.column != kNone) return false;
            roles_.column = i;
            roles_.kind = RowWalk::along_rows;
        }
        for (IndexRange& it : all_.indices) it.reduced = false;
        if (all_.indices.empty()) return false;
        if (sums_down()) return turn();
        if (roles_.column == kNone) roles_.column = best_choice(all_).column;
        roles_.row = best_row(all_, roles_.column, {});
        for (std::size_t i = 0; i < all_.operands.size(); ++i) {
            if (!lies_well(all_.operands[i], roles_.column)) return false;
            const bool is_single = all_.operands[i].strides[roles_.column] == 0;
            if (i >= reads_.size() && is_single == is_map(writes_[i - reads_.size()])) return false;
        }
        return true;
    }

    // Whether what is reduced are rows, whose elements are neighbours along the other index.
    bool sums_down() const {
        if (roles_.column == kNone || all_.indices.size() != 2) return false;
        const std::size_t other = 1 - roles_.column;
        const auto lies = [&](const BoundOperand& it) { return lies_well(it, other); };
        return !std::all_of(all_.operands.begin(), all_.operands.end(),
                            [&](const BoundOperand& it) { return lies_well(it, roles_.column); }) &&
               std::all_of(all_.operands.begin(), all_.operands.end(), lies);
    }

    // Sums that nothing else of the program waits for, as they are there behind the last row.
    bool turn() {
        roles_.row = roles_.column;
        roles_.column = 1 - roles_.row;
        roles_.kind = RowWalk::map;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            Part& part = parts_[i];
            if (part.kind == Kind::map) continue;
            const BoundStatement& it = part.of->it;
            const bool is_last = std::none_of(parts_.begin(), parts_.end(), [&](const Part& by) {
                return std::find(by.made_by.begin(), by.made_by.end(), i) != by.made_by.end();
            });
            const bool fits = part.kind == Kind::sum && it.reduction == Reduction::sum &&
                              it.result.dtype == DType::f32 && part.of->is_stored && is_last;
            if (!fits) return false;
            part.kind = Kind::down;
        }
        for (std::size_t i = 0; i < writes_.size(); ++i) {
            const BoundOperand& it = all_.operands[reads_.size() + i];
            if (it.strides[roles_.column] != 1) return false;
        }
        return true;
    }

    Kind kind_of(const Place& write) const { return parts_[write.access.statement].kind; }

    bool is_map(const Place& write) const { return kind_of(write) == Kind::map; }

    // As it is written, or as it is computed: what is written several times is computed once.
    bool is_small() const {
        std::int64_t length = 0;
        for (const Part& part : parts_) length += length_of(part.of->it.value);
        return std::min(length, std::ssize(spec_.instructions)) <= kMostInstructions;
    }

    RowSpec program() const {
        RowBuilder row;
        std::vector<RowValue> operands, values;
        for (std::size_t i = 0; i < reads_.size(); ++i) {
            operands.push_back(named(row, all_.operands[i], roles_, false));
        }
        for (const Part& part : parts_) {
            std::vector<RowValue> read;
            for (std::size_t i = 0; i < part.read.size(); ++i) {
                const std::size_t maker = part.made_by[i];
                read.push_back(maker == kNone ? operands[part.read[i]] : values[maker]);
            }
            const BoundStatement& it = part.of->it;
            RowValue value = row_value(row, it.value, read);
            if (part.kind == Kind::sum) value = joined_row(it.reduction, value);
            const bool is_half = size_of(it.result.dtype) == 2;
            values.push_back(is_half ? rounded(it.result.dtype, value) : value);
        }
        for (const Place& it : writes_) {
            const RowValue value = values[it.access.statement];
            switch (kind_of(it)) {
                case Kind::map: row.store(it.it.dtype, value); break;
                case Kind::down: row.add_to_column(value); break;
                default: row.store_per_row(value);
            }
        }
        return row.spec();
    }

    // What is read may be loaded again in every pass, so nothing may lie there before the last.
    bool overwrites_early() const {
        const std::vector<std::size_t> early = stored_early(spec_);
        return std::any_of(early.begin(), early.end(), [&](std::size_t operand) {
            const std::size_t array = writes_[operand - reads_.size()].array;
            return std::any_of(reads_.begin(), reads_.end(),
                               [&](const Place& read) { return read.array == array; });
        });
    }

    // Values need not be loaded and stored, but sums that need others wait for these.
    bool is_cheaper() const {
        constexpr double kBody = 0.75;
        const std::int64_t columns = all_.indices[roles_.column].extent;
        const std::int64_t rows = extent_of(all_, false) / columns;
        RowWork work{.rows = static_cast<double>(rows),
                     .columns = static_cast<double>(columns),
                     .bodies = 1 - kBody};
        if (roles_.row != kNone)
            work.rows_of_call = static_cast<double>(all_.indices[roles_.row].extent);
        double apart = 0;
        for (const Part& part : parts_) {
            work.bodies += part.kind == Kind::single ? 0 : kBody;
            work.sums += part.kind == Kind::sum ? 1 : 0;
            BoundStatement alone = part.of->it;
            simplify(alone);
            apart += alone.indices.empty() ? cost_of(RowWork{}) : best_choice(alone).cost;
        }
        if (work.sums > 0 && takes_parts(rows, columns)) return false;
        work.sums += waits_for_sums(spec_);
        return cost_of(work) <= apart;
    }

    std::vector<Part> parts_ = {};
    std::vector<Place> reads_ = {};
    std::vector<Place> writes_ = {};
    BoundStatement all_ = {};
    PassRoles roles_ = {.column = kNone};
    RowSpec spec_ = {};
};

}  // namespace

bool FusedRows::fit(const std::vector<FusedStatement>& statements) {
    return Fusion(statements).fits();
}

FusedRows::FusedRows(const std::vector<FusedStatement>& statements) {
    Fusion fusion(statements);
    if (!fusion.fits()) {
        throw std::invalid_argument(
            "statements are not one program of rows, expected some that fit");
    }
    accesses_ = fusion.accesses();
    zeroed_ = fusion.zeroed();
    pass_.emplace(fusion.spec(), fusion.all(), fusion.roles());
}

void FusedRows::run(std::span<const void* const> arrays) const {
    std::vector<char*> all;
    for (const void* it : arrays) all.push_back(static_cast<char*>(const_cast<void*>(it)));
    for (const Zeroed& it : zeroed_) std::fill_n(all[it.operand] + it.offset, it.bytes, '\0');
    pass_->run(all, nullptr);
}

std::string FusedRows::described() const { return pass_->described() + "\n"; }

}  // namespace dlprim
