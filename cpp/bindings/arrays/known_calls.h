// What a plain function found out when it was last called with arrays of these forms and these
// other arguments, so that the next such call checks nothing again: checking in Python what nearly
// every call brings again takes longer than a small layer. Only what is used as it is has a form:
// C-contiguous aligned ndarrays, of no subclass, in native byte order, and None beside them;
// integers, floats, booleans, strings, None and tuples of these, each of its exact type. A call
// with anything else is never known, and is checked every time.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include <pybind11/pybind11.h>

namespace dlprim::bindings {

// Guarded by the GIL. Keeps the latest `most` calls.
class KnownCalls {
public:
    // What is kept holds for one value of the environment variable.
    KnownCalls(std::size_t most, std::string variable)
        : most_(most), variable_(std::move(variable)) {}

    // What was kept for such a call, else None.
    pybind11::object find(const pybind11::tuple& arrays, const pybind11::tuple& others);
    // Keeps `found`, unless the call has no form, or what came of its arrays are not these.
    void keep(const pybind11::tuple& arrays, const pybind11::tuple& others, pybind11::object found,
              const pybind11::tuple& used);
    void clear();

private:
    // To form_; false where the call has none.
    bool write_form(const pybind11::tuple& arrays, const pybind11::tuple& others);

    using Entry = std::pair<std::string, pybind11::object>;

    std::size_t most_;
    std::string variable_;
    std::string form_ = {};  // of the call that is looked at, in memory that stays
    std::list<Entry> latest_ = {};
    std::unordered_map<std::string, std::list<Entry>::iterator> places_ = {};
};

}  // namespace dlprim::bindings
