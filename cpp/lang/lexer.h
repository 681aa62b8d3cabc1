// The words of a formula, and how what is wrong with one is said: every message of the language
// quotes the line of the text and marks the place, whether a character, a rank or a range is wrong.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace dlprim {

struct Token {
    enum class Kind : std::uint8_t { number, name, symbol, end };

    Kind kind = Kind::end;
    std::string_view text = {};
    std::int64_t position = 0;  // in bytes
};

// Without blanks and comments ("# to the end of the line"), and a token of kind `end` at last. They
// point into the text.
std::vector<Token> tokens_of(std::string_view text);

// Throws std::invalid_argument: a sentence without its full stop, line and column of the position,
// the line, and a mark below it.
[[noreturn]] void refuse_sentence(std::string_view text, std::int64_t position,
                                  const std::string& sentence);

// The same of a sentence in parts, which may be numbers.
template <typename... Parts>
[[noreturn]] void refuse_at(std::string_view text, std::int64_t position, const Parts&... parts) {
    std::ostringstream sentence;
    (sentence << ... << parts);
    refuse_sentence(text, position, sentence.str());
}

}  // namespace dlprim
