// A stretch of a call without Python's GIL. Where Python ends in the meantime it has daemon threads
// end themselves as they ask for the GIL, and unwinds their stacks: through destructors, which must
// not throw, and which would let go of objects without the GIL. Such a thread waits here for the
// end of the process instead, as Python 3.14 has it do.
#pragma once

#include <unistd.h>

#include <pybind11/pybind11.h>

namespace dlprim::bindings {

class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }

private:
    PyThreadState* state_;
};

template <typename Make>
auto without_gil(const Make& make) {
    const WithoutGil released;
    return make();
}

}  // namespace dlprim::bindings
