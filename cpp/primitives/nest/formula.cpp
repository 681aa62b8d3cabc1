#include "primitives/nest/formula.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace dlprim {
namespace {

// Bound of every number and of every product of two: sums of them never overflow.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
public:
    Parser(std::string_view text, const Constants& constants)
        : text_(text), constants_(constants) {}

    Statement statement() {
        Statement made{.text = std::string(text_), .result = access()};
        expect("+=", "'+=' or '+=!'");
        made.adds_to_result = !takes("!");
        if (!takes("0")) {
            made.factors.push_back(access());
            if (takes("*")) made.factors.push_back(access());
        }
        skip_blanks();
        if (at_ < text_.size()) refuse("the end of the statement");
        return made;
    }

private:
    [[noreturn]] void refuse(const std::string& expected) const {
        const std::string found =
            at_ < text_.size() ? std::string("'") + text_[at_] + "'" : "nothing more";
        throw std::invalid_argument("The formula \"" + std::string(text_) + "\" has " + found +
                                    " at position " + std::to_string(at_) + ", expected " +
                                    expected + ".");
    }

    void skip_blanks() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    }

    bool takes(std::string_view token) {
        skip_blanks();
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }

    void expect(std::string_view token, const std::string& shown) {
        if (!takes(token)) refuse(shown);
    }

    std::string name(const std::string& expected) {
        skip_blanks();
        const std::size_t begin = at_;
        if (at_ == text_.size() || !begins_name(text_[at_])) refuse(expected);
        while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
        return std::string(text_.substr(begin, at_ - begin));
    }

    Access access() {
        Access made{.tensor = name("the name of a tensor")};
        made.may_lie_outside = takes("?");
        expect("(", "'('");
        if (takes(")")) return made;
        do {
            made.places.push_back(sum());
        } while (takes(","));
        expect(")", "',' or ')'");
        return made;
    }

    AffineSum sum() {
        AffineSum made;
        bool negative = takes("-");
        for (;;) {
            add(product(), negative, made);
            if (takes("+")) {
                negative = false;
            } else if (takes("-")) {
                negative = true;
            } else {
                break;
            }
        }
        std::erase_if(made.terms, [](const AffineTerm& term) { return term.factor == 0; });
        return made;
    }

    static void add(const AffineTerm& product, bool negative, AffineSum& sum) {
        const std::int64_t number = negative ? -product.factor : product.factor;
        if (product.index.empty()) {
            sum.constant += number;
            return;
        }
        const auto same =
            std::find_if(sum.terms.begin(), sum.terms.end(),
                         [&](const AffineTerm& term) { return term.index == product.index; });
        if (same != sum.terms.end()) {
            same->factor += number;
        } else {
            sum.terms.push_back({number, product.index});
        }
    }

    // Of numbers and at most one index.
    AffineTerm product() {
        AffineTerm made;
        do {
            skip_blanks();
            const std::size_t begin = at_;
            const AffineTerm next = factor();
            made.factor *= next.factor;
            const bool two = !made.index.empty() && !next.index.empty();
            if (two || std::abs(made.factor) > kMost) {
                at_ = begin;
                refuse(two ? "one index in a product" : "a product of at most 2^31");
            }
            if (!next.index.empty()) made.index = next.index;
        } while (takes("*"));
        return made;
    }

    AffineTerm factor() {
        const std::size_t begin = at_;
        if (at_ < text_.size() && is_digit(text_[at_])) return {number()};
        std::string found = name("an index, a constant or a number");
        const auto constant = constants_.find(found);
        if (constant == constants_.end()) return {1, std::move(found)};
        if (std::abs(constant->second) <= kMost) return {constant->second};
        at_ = begin;
        refuse("a constant of at most 2^31");
    }

    std::int64_t number() {
        std::int64_t value = 0;
        const char* const begin = text_.data() + at_;
        const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
        if (error != std::errc{} || value > kMost) refuse("a number of at most 2^31");
        at_ += static_cast<std::size_t>(end - begin);
        return value;
    }

    std::string_view text_;
    const Constants& constants_;
    std::size_t at_ = 0;
};

}  // namespace

Statement parse_statement(std::string_view text, const Constants& constants) {
    return Parser(text, constants).statement();
}

}  // namespace dlprim
