#include "lang/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "lang/functions.h"
#include "lang/lexer.h"
#include "lang/stack.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;
using Names = std::set<std::string, std::less<>>;

constexpr int kDeepest = 200;                              // parentheses within parentheses
constexpr std::int64_t kMostNodes = 4096;                  // of the expressions of a statement
constexpr double kLargestInteger = std::int64_t{1} << 31;  // sums and products fit 64 bits

struct Assignment {
    std::string_view text;
    Reduction reduction;
    bool initializes;
};
constexpr std::array<Assignment, 9> kAssignments = {{
    {"=", Reduction::none, true},
    {"+=!", Reduction::sum, true},
    {"+=", Reduction::sum, false},
    {"*=!", Reduction::product, true},
    {"*=", Reduction::product, false},
    {"max=!", Reduction::largest, true},
    {"max=", Reduction::largest, false},
    {"min=!", Reduction::smallest, true},
    {"min=", Reduction::smallest, false},
}};

std::int64_t nodes_of(const Expression& tree) {
    std::int64_t count = 1;
    for (const Expression& operand : tree.operands) count += nodes_of(operand);
    return count;
}

void add_names(const Expression& tree, std::vector<std::string>& names) {
    if (tree.kind == Kind::name) names.push_back(tree.name);
    for (const Expression& operand : tree.operands) add_names(operand, names);
}

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text), tokens_(tokens_of(text)) {}

    std::vector<Definition> definitions() {
        std::vector<Definition> made;
        Names known;
        do {
            const std::int64_t position = token(1).position;
            made.push_back(definition());
            if (!known.insert(made.back().name).second) {
                refuse_at(text_, position, "The name ", made.back().name, " is defined twice");
            }
        } while (!at_end());
        return made;
    }

    Statement only_statement() {
        find_names_alone();
        Statement made = statement();
        if (!at_end()) refuse("the end of the statement");
        return made;
    }

private:
    const Token& token(std::size_t ahead = 0) const {
        return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
    }
    bool at_end() const { return token().kind == Token::Kind::end; }
    bool is(std::string_view text, std::size_t ahead = 0) const {
        const std::string_view found = token(ahead).text;
        return found.size() == text.size() && found.front() == text.front() && found == text;
    }

    [[noreturn]] void refuse(const std::string& expected) const {
        const std::string found = at_end() ? "nothing more" : "'" + std::string(token().text) + "'";
        refuse_at(text_, token().position, "The formula has ", found, ", expected ", expected);
    }

    bool takes(std::string_view text) {
        if (!is(text)) return false;
        ++at_;
        return true;
    }

    void expect(std::string_view text) {
        if (!takes(text)) refuse("'" + std::string(text) + "'");
    }

    // Between parentheses, which may hold nothing.
    template <typename Item>
    void list(const Item& item) {
        expect("(");
        if (takes(")")) return;
        do {
            item();
        } while (takes(","));
        if (!takes(")")) refuse("',' or ')'");
    }

    std::string name(const std::string& expected) {
        // "in" and "exists" mean something at one place only: the language's paper calls inputs so.
        if (token().kind != Token::Kind::name || is("def") || is("where")) refuse(expected);
        return std::string(tokens_[at_++].text);
    }

    // A tensor has its places behind it wherever it stands, up to the end of the definition.
    void find_names_alone() {
        for (std::size_t i = 0; !is("}", i) && token(i).kind != Token::Kind::end; ++i) {
            const bool has_places = is("(", i + 1) || (is("?", i + 1) && is("(", i + 2));
            if (token(i).kind != Token::Kind::name || has_places) continue;
            without_places_.emplace(token(i).text);
        }
    }

    Definition definition() {
        Definition made{.text = std::string(text_)};
        expect("def");
        made.name = name("the name of a definition");
        without_places_.clear();
        list([&] { made.parameters.push_back(parameter()); });
        expect("->");
        const auto result = [&] {
            const std::string expected = "the name of a result, whose type follows from its value";
            if (is_type(token().text)) refuse(expected);
            made.returns.push_back(name(expected));
        };
        is("(") ? list(result) : result();
        expect("{");
        find_names_alone();
        while (!takes("}")) {
            made.statements.push_back(statement());
            const Statement& last = made.statements.back();
            if (last.target.operands.empty()) without_places_.insert(last.result);
        }
        return made;
    }

    Parameter parameter() {
        nodes_ = 0;
        Parameter made{.type = std::string(token().text), .position = token().position};
        if (!is_type(made.type)) refuse("a type such as float");
        ++at_;
        if (is("(")) {
            list([&] {
                Expression dimension = expression();
                if (dimension.kind == Kind::number && !dimension.is_integer) {
                    refuse_at(text_, dimension.position, "A size is no whole number");
                }
                std::vector<std::string> sizes;
                add_names(dimension, sizes);
                without_places_.insert(sizes.begin(), sizes.end());
                made.dimensions.push_back(std::move(dimension));
            });
        }
        made.position = token().position;
        made.name = name("the name of a parameter");
        if (made.dimensions.empty()) without_places_.insert(made.name);
        return made;
    }

    Statement statement() {
        nodes_ = 0;
        Statement made{.position = token().position};
        made.target = {.kind = Kind::read, .position = token().position};
        made.target.name = made.result = name("the name of a result");
        made.target.may_lie_outside = takes("?");
        if (is("(")) made.target.operands = expressions();
        for (const Expression& place : made.target.operands) add_names(place, made.indices);
        const auto* const assignment =
            std::find_if(kAssignments.begin(), kAssignments.end(),
                         [&](const Assignment& it) { return it.text == token().text; });
        if (assignment == kAssignments.end()) refuse("'=', '+=!' or another assignment");
        ++at_;
        made.reduction = assignment->reduction;
        made.initializes = assignment->initializes;
        made.value = expression();
        if (takes("where")) {
            do {
                clause(made);
            } while (takes(","));
        }
        return made;
    }

    void clause(Statement& statement) {
        if (takes("exists")) {
            statement.exists.push_back(expression());
            return;
        }
        RangeClause range{.position = token().position};
        range.index = name("an index or 'exists'");
        if (takes("=")) {
            substitute(statement, range.index, expression());
            return;
        }
        if (!takes("in")) refuse("'in' or '='");
        range.first = expression();
        if (!takes(":") && !takes("..")) refuse("':' or '..'");
        range.end = expression();
        statement.ranges.push_back(std::move(range));
    }

    // "where a = b" stands for b in all of the statement that stands in front of it.
    void substitute(Statement& statement, const std::string& name, const Expression& by) {
        const std::int64_t nodes = nodes_of(by);
        const auto visit = [&](const auto& self, Expression& tree) -> void {
            if (tree.kind == Kind::name && tree.name == name) {
                nodes_ += nodes;
                require_few_nodes();
                tree = by;
                return;
            }
            tree.levels += by.levels;
            require_stack(text_, tree.position, tree.levels);
            for (Expression& operand : tree.operands) self(self, operand);
        };
        visit(visit, statement.value);
        for (RangeClause& range : statement.ranges) {
            visit(visit, range.first);
            visit(visit, range.end);
        }
        for (Expression& read : statement.exists) visit(visit, read);
    }

    void require_few_nodes() const {
        if (nodes_ <= kMostNodes) return;
        refuse("a statement of at most " + std::to_string(kMostNodes) + " names and operators");
    }

    std::vector<Expression> expressions() {
        std::vector<Expression> made;
        made.reserve(4);
        list([&] { made.push_back(expression()); });
        return made;
    }

    Expression made_of(Kind kind, std::string_view name, std::int64_t position) {
        ++nodes_;
        require_few_nodes();
        return {.kind = kind, .name = std::string(name), .position = position};
    }

    // With its operands.
    Expression whole(Expression made) const {
        for (const Expression& it : made.operands) {
            made.levels = std::max(made.levels, it.levels + 1);
        }
        require_stack(text_, made.position, made.levels);
        return made;
    }

    // c ? a : b
    Expression expression() {
        require_stack(text_, token().position, 1);
        if (++depth_ > kDeepest) {
            refuse("at most " + std::to_string(kDeepest) + " expressions within each other");
        }
        Expression made = binary(1);
        if (takes("?")) {
            Expression choice = made_of(Kind::call, "?:", made.position);
            choice.operands.reserve(3);
            choice.operands.push_back(std::move(made));
            choice.operands.push_back(expression());
            expect(":");
            choice.operands.push_back(expression());
            made = whole(std::move(choice));
        }
        --depth_;
        return made;
    }

    Expression binary(int least) {
        Expression left = unary();
        while (token().kind == Token::Kind::symbol) {
            const std::string_view op = token().text;
            const int found = tightness(op);
            if (found < least || found == 0) break;
            ++at_;
            Expression both = made_of(Kind::call, op, left.position);
            both.operands.reserve(2);
            both.operands.push_back(std::move(left));
            both.operands.push_back(binary(found + 1));
            left = whole(std::move(both));
        }
        return left;
    }

    Expression unary() {
        if (!is("-") && !is("!")) return base();
        const Token op = token();
        require_stack(text_, op.position, 1);
        if (++depth_ > kDeepest) refuse("fewer signs");
        ++at_;
        Expression made = made_of(Kind::call, op.text, op.position);
        made.operands.push_back(unary());
        --depth_;
        return whole(std::move(made));
    }

    Expression base() {
        if (token().kind == Token::Kind::number) return number();
        if (takes("(")) {
            Expression made = expression();
            expect(")");
            return made;
        }
        return named();
    }

    Expression named() {
        const Token& first = token();
        const bool opens = is("(", 1);
        const Function* const function = opens ? find_function(first.text) : nullptr;
        if (function != nullptr && first.kind == Token::Kind::name) {
            Expression made = made_of(Kind::call, first.text, first.position);
            ++at_;
            made.operands = expressions();
            return whole(std::move(made));
        }
        Expression made = made_of(Kind::name, first.text, first.position);
        name("a name, a number or '('");
        const bool may_lie_outside = is("?") && is("(", 1) && !without_places_.contains(first.text);
        if (!opens && !may_lie_outside) return made;
        if (may_lie_outside) ++at_;
        made.kind = Kind::read;
        made.may_lie_outside = may_lie_outside;
        made.operands = expressions();
        return whole(std::move(made));
    }

    Expression number() {
        const Token& found = token();
        Expression made = made_of(Kind::number, {}, found.position);
        const auto result =
            std::from_chars(found.text.data(), found.text.data() + found.text.size(), made.number);
        made.is_integer = found.text.find_first_of(".eE") == std::string_view::npos;
        if (made.is_integer && made.number > kLargestInteger) refuse("a number of at most 2^31");
        if (result.ec != std::errc{}) refuse("a number within the range of double precision");
        ++at_;
        return made;
    }

    std::string_view text_;
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    Names without_places_;  // scalars, sizes and indices: no "?(" behind them is an access
    std::int64_t nodes_ = 0;
    int depth_ = 0;
};

}  // namespace

std::vector<Definition> parse_definitions(std::string_view text) {
    return Parser(text).definitions();
}

Statement parse_statement(std::string_view text) { return Parser(text).only_statement(); }

Definition parse_contraction(std::string_view text) {
    return definition_of(std::string(text), parse_statement(text));
}

}  // namespace dlprim
