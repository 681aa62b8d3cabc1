#include "lang/fusion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

class Grouping {
public:
    Grouping(const Definition& definition, const Ranges& ranges)
        : definition_(definition), ranges_(ranges) {}

    std::vector<StatementGroup> groups() const {
        std::vector<StatementGroup> found;
        for (int i = 0; i < static_cast<int>(definition_.statements.size()); ++i) {
            if (!found.empty()) {
                StatementGroup longer = found.back();
                ++longer.count;
                longer.common = common_of(longer);
                if (!longer.common.empty()) {
                    found.back() = std::move(longer);
                    continue;
                }
            }
            found.push_back({i, 1, statement(i).indices});
            found.back().common = common_of(found.back());
        }
        return found;
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

    bool writes_along(int number, const std::string& index) const {
        const auto& indices = statement(number).indices;
        return std::find(indices.begin(), indices.end(), index) != indices.end();
    }

    std::vector<std::string> common_of(const StatementGroup& group) const {
        std::vector<std::string> common;
        for (const std::string& index : group.common) {
            const std::int64_t extent = extent_of(group.first, index);
            bool agree = extent > 0;
            for (int i = group.first; i < group.first + group.count; ++i) {
                agree = agree && writes_along(i, index) && extent_of(i, index) == extent;
            }
            if (agree && stands_alone(group, index)) common.push_back(index);
        }
        return common;
    }

    // At one place of each tensor that the group writes, wherever that is written or read.
    bool stands_alone(const StatementGroup& group, const std::string& index) const {
        std::map<std::string, std::size_t, std::less<>> place_of;
        for (int i = group.first; i < group.first + group.count; ++i) {
            const Statement& it = statement(i);
            if (is_value(it.value, index)) return false;
            const std::size_t place = place_alone(it, index);
            if (place == it.target.operands.size()) return false;
            if (place_of.emplace(it.result, place).first->second != place) return false;
        }
        for (int i = group.first; i < group.first + group.count; ++i) {
            bool alone = true;
            for_reads(statement(i).value, [&](const Expression& read) {
                const auto written = place_of.find(read.name);
                if (written == place_of.end()) return;
                for (std::size_t k = 0; k < read.operands.size(); ++k) {
                    const Expression& place = read.operands[k];
                    const bool is_it = place.kind == Kind::name && place.name == index;
                    alone = alone && (k == written->second ? is_it : !is_value(place, index));
                }
                alone = alone && is_inside(read, i);
            });
            if (!alone) return false;
        }
        return true;
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
};

}  // namespace

std::vector<StatementGroup> groups_of(const Definition& definition, const Ranges& ranges) {
    return Grouping(definition, ranges).groups();
}

}  // namespace dlprim
