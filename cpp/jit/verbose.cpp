#include "jit/verbose.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "jit/isa.h"

namespace dlprim {
namespace {

bool read_verbose() {
    const char* variable = std::getenv("DLPRIM_VERBOSE");
    const std::string_view value = variable == nullptr ? "" : variable;
    if (value.empty() || value == "0") return false;
    if (value == "1") return true;
    throw std::invalid_argument("environment variable DLPRIM_VERBOSE: '" + std::string(value) +
                                "' is not 0 or 1");
}

}  // namespace

bool verbose() {
    static const bool on = read_verbose();
    return on;
}

void report(std::string_view sentence) {
    const std::string line = "dlprim: " + std::string(sentence) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
}

void report_machine() {
    [[maybe_unused]] static const bool once = [] {
        const std::string has(name_of(detected_isa())), uses(name_of(usable_isa()));
        const std::string reason(reason_for_lower_isa());
        report("this machine has " + has + ", " +
               (uses == has ? "all of it is used" : uses + " is used: " + reason));
        return true;
    }();
}

}  // namespace dlprim
