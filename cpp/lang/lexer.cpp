#include "lang/lexer.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace dlprim {
namespace {

constexpr std::size_t kLongestText = 1 << 20;
// What is not one character; of two that begin alike the longer one is in front.
constexpr std::array<std::string_view, 12> kLong = {
    "+=!", "*=!", "+=", "*=", "==", "!=", "<=", ">=", "&&", "||", "->", ".."};
constexpr std::array<std::string_view, 4> kNamed = {"max=!", "min=!", "max=", "min="};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

class Lexer {
public:
    explicit Lexer(std::string_view text) : text_(text) {}

    std::vector<Token> tokens() {
        std::vector<Token> made;
        made.reserve(text_.size() / 2 + 1);
        for (skip(); at_ < text_.size(); skip()) made.push_back(token());
        made.push_back({.position = static_cast<std::int64_t>(at_)});
        return made;
    }

private:
    char ahead(std::size_t distance = 0) const {
        return at_ + distance < text_.size() ? text_[at_ + distance] : '\0';
    }

    void skip() {
        while (at_ < text_.size()) {
            if (ahead() == '#') {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (is_blank(ahead())) {
                ++at_;
            } else {
                break;
            }
        }
    }

    Token token() {
        const std::size_t begin = at_;
        Token::Kind kind = Token::Kind::symbol;
        if (is_digit(ahead()) || (ahead() == '.' && is_digit(ahead(1)))) {
            kind = Token::Kind::number;
            pass_number();
        } else if (begins_name(ahead()) && !passes_one_of(kNamed)) {
            kind = Token::Kind::name;
            while (begins_name(ahead()) || is_digit(ahead())) ++at_;
        } else if (at_ == begin) {
            pass_symbol();
        }
        return {kind, text_.substr(begin, at_ - begin), static_cast<std::int64_t>(begin)};
    }

    // "0..2" is a number, two points and a number.
    void pass_number() {
        while (is_digit(ahead())) ++at_;
        if (ahead() == '.' && ahead(1) != '.') {
            ++at_;
            while (is_digit(ahead())) ++at_;
        }
        const std::size_t sign = ahead(1) == '+' || ahead(1) == '-' ? 1 : 0;
        if ((ahead() == 'e' || ahead() == 'E') && is_digit(ahead(sign + 1))) {
            at_ += sign + 1;
            while (is_digit(ahead())) ++at_;
        }
    }

    void pass_symbol() {
        switch (ahead()) {
            case '(':
            case ')':
            case ',':
            case '?':
            case ':':
            case '/':
            case '%':
            case '{':
            case '}': ++at_; return;
            default: break;
        }
        if (passes_one_of(kLong)) return;
        const std::size_t begin = at_++;
        if (std::string_view("=<>+-*!").find(text_[begin]) != std::string_view::npos) return;
        while (at_ < text_.size() && continues_character(ahead())) ++at_;
        refuse_at(text_, static_cast<std::int64_t>(begin), "The formula has '",
                  text_.substr(begin, at_ - begin), "', which is no part of any");
    }

    template <std::size_t count>
    bool passes_one_of(const std::array<std::string_view, count>& texts) {
        for (const std::string_view text : texts) {
            if (text.front() != ahead() || text_.substr(at_, text.size()) != text) continue;
            // "max==" compares what is called max.
            if (text.back() == '=' && text.size() == 4 && ahead(4) == '=') return false;
            at_ += text.size();
            return true;
        }
        return false;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
    if (text.size() > kLongestText) {
        throw std::invalid_argument("The formula has " + std::to_string(text.size()) +
                                    " characters, expected at most 2^20.");
    }
    return Lexer(text).tokens();
}

void refuse_sentence(std::string_view text, std::int64_t position, const std::string& sentence) {
    const auto at = std::min(static_cast<std::size_t>(position), text.size());
    const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view line = text.substr(begin, text.find('\n', at) - begin);
    std::string blanks;
    for (const char c : text.substr(begin, at - begin)) {
        if (!continues_character(c)) blanks += c == '\t' ? '\t' : ' ';
    }
    throw std::invalid_argument(
        sentence + " (line " +
        std::to_string(1 + std::count(text.begin(), text.begin() + begin, '\n')) + ", column " +
        std::to_string(blanks.size() + 1) + ").\n    " + std::string(line) + "\n    " + blanks +
        "^");
}

}  // namespace dlprim
