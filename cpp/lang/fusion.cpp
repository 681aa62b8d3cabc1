#include "lang/fusion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "lang/affine.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;
void for_reads(const Expression& tree, const std::function<void(const Expression&)>& visit) {
    if (tree.kind == Kind::read) visit(tree);
    for (const Expression& operand : tree.operands) for_reads(operand, visit);
}

// As a number, and not as a place.
bool is_value(const Expression& tree, const std::string& index) {
    if (tree.kind == Kind::read) return false;
    if (tree.kind == Kind::name && tree.name == index) return true;
    return std::any_of(tree.operands.begin(), tree.operands.end(),
                       [&](const Expression& it) { return is_value(it, index); });
}

}  // namespace

std::size_t place_alone(const Statement& statement, const std::string& index) {
    const auto& places = statement.target.operands;
    return static_cast<std::size_t>(std::find_if(places.begin(), places.end(),
                                                 [&](const Expression& it) {
                                                     return it.kind == Kind::name &&
                                                            it.name == index;
                                                 }) -
                                    places.begin());
}

namespace {

// An index of all statements of a group so far, and where it stands.
struct Common {
    std::string index;
    std::int64_t extent = 0;
    std::map<std::string_view, std::size_t> place_of = {};  // in tensors that the group writes
};

class Grouping {
public:
    Grouping(const Definition& definition, const Ranges& ranges)
        : definition_(definition), ranges_(ranges) {}

    std::vector<StatementGroup> groups() {
        for (int i = 0; i < static_cast<int>(definition_.statements.size()); ++i) {
            if (found_.empty() || !extend(i)) begin(i);
        }
        return std::move(found_);
    }

private:
    const Statement& statement(int number) const {
        return definition_.statements[static_cast<std::size_t>(number)];
    }

    // 0 where the statement has no such index.
    std::int64_t extent_of(int number, const std::string& index) const {
        for (const IndexRange& it : ranges_.statements[static_cast<std::size_t>(number)]) {
            if (it.name == index) return it.extent;
        }
        return 0;
    }

    void begin(int number) {
        reads_.clear();
        common_.clear();
        for (const std::string& index : statement(number).indices) {
            common_.push_back({index, extent_of(number, index)});
        }
        found_.push_back({number, 1, {}});
        take(number);
    }

    // Whether the statement has an index in common with the last group; then it is one of it.
    bool extend(int number) {
        ++found_.back().count;
        take(number);
        if (!common_.empty()) return true;
        --found_.back().count;
        return false;
    }

    // Leaves those that are the new statement's, too.
    void take(int number) {
        for_reads(statement(number).value,
                  [&](const Expression& read) { reads_[read.name].push_back({&read, number}); });
        std::vector<Common> left;
        for (Common& it : common_) {
            if (stands_alone(it, number)) left.push_back(std::move(it));
        }
        common_ = std::move(left);
        std::vector<std::string>& names = found_.back().common;
        if (common_.empty() && found_.back().count > 1) return;
        names.clear();
        for (const Common& it : common_) names.push_back(it.index);
    }

    // At one place of each tensor that the group writes, wherever that is written or read.
    bool stands_alone(Common& common, int number) const {
        const Statement& it = statement(number);
        const std::size_t place = place_alone(it, common.index);
        if (common.extent == 0 || place == it.target.operands.size() ||
            extent_of(number, common.index) != common.extent || is_value(it.value, common.index)) {
            return false;
        }
        const auto [written, is_new] = common.place_of.emplace(it.result, place);
        if (written->second != place) return false;
        if (is_new && !reads_stand_alone(common, *written)) return false;
        bool alone = true;
        for_reads(it.value, [&](const Expression& read) {
            const auto known = common.place_of.find(read.name);
            alone = alone && (known == common.place_of.end() ||
                              stands_alone(common, known->second, {&read, number}));
        });
        return alone;
    }

    struct Read {
        const Expression* read;
        int number;
    };

    // Of those that the group has so far.
    bool reads_stand_alone(const Common& common,
                           const std::pair<const std::string_view, std::size_t>& written) const {
        const auto reads = reads_.find(written.first);
        return reads == reads_.end() ||
               std::all_of(reads->second.begin(), reads->second.end(), [&](const Read& it) {
                   return stands_alone(common, written.second, it);
               });
    }

    bool stands_alone(const Common& common, std::size_t written, const Read& it) const {
        for (std::size_t k = 0; k < it.read->operands.size(); ++k) {
            const Expression& place = it.read->operands[k];
            const bool is_it = place.kind == Kind::name && place.name == common.index;
            if (k == written ? !is_it : is_value(place, common.index)) return false;
        }
        return is_inside(*it.read, it.number);
    }

    // Whether all places of a read are in its tensor: then it takes no copy with zeros around it.
    bool is_inside(const Expression& read, int number) const {
        if (read.may_lie_outside) return false;
        const Shape& shape = ranges_.shapes.at(read.name);
        for (std::size_t i = 0; i < shape.size(); ++i) {
            const auto sum = affine_of(read.operands[i], ranges_.sizes);
            if (!sum) return false;
            std::int64_t first = sum->constant, last = sum->constant;
            for (const AffineTerm& term : sum->terms) {
                (term.factor < 0 ? first : last) +=
                    term.factor * (extent_of(number, term.index) - 1);
            }
            if (first < 0 || last >= shape[i]) return false;
        }
        return true;
    }

    const Definition& definition_;
    const Ranges& ranges_;
    std::vector<StatementGroup> found_ = {};
    std::vector<Common> common_ = {};                           // to the last of them
    std::map<std::string_view, std::vector<Read>> reads_ = {};  // in it, by tensor
};

}  // namespace

std::vector<StatementGroup> groups_of(const Definition& definition, const Ranges& ranges) {
    return Grouping(definition, ranges).groups();
}

}  // namespace dlprim
