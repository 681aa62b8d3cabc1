#include "brgemm/verbose.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "brgemm/brgemm.h"

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

std::string quoted(Isa isa) { return "'" + std::string(name_of(isa)) + "'"; }

std::string reason_for_isa(const Brgemm& kernel, Isa asked) {
    const BrgemmSpec& spec = kernel.spec();
    if (kernel.isa() == detected_isa()) return "all this machine has";
    if (kernel.isa() == kernel_isa(spec, detected_isa())) {
        return std::string(name_of(spec.a_type)) + " uses no more";
    }
    if (asked < usable_isa()) return "isa=" + quoted(asked) + " lowered it";
    return "DLPRIM_MAX_ISA lowered it";
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
        std::string line = "this machine has " + std::string(name_of(detected_isa()));
        if (usable_isa() == detected_isa()) {
            line += ", all of it is used";
        } else {
            line +=
                ", " + std::string(name_of(usable_isa())) + " is used: DLPRIM_MAX_ISA lowered it";
        }
        report(line);
        return true;
    }();
}

void report_generated(const Brgemm& kernel, Isa asked, double microseconds) {
    const Tile tile = kernel.plan().main_tile();
    report("generated " + kernel.name() + ": " + std::string(name_of(kernel.isa())) + " (" +
           reason_for_isa(kernel, asked) + "), tile " + std::to_string(tile.rows) + "x" +
           std::to_string(tile.vectors) + ", " + std::to_string(kernel.bytes()) + " bytes, " +
           std::to_string(std::llround(microseconds)) + " us");
}

}  // namespace dlprim
