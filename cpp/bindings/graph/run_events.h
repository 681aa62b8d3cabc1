// The events of a run as Python waits for them: a thread that waits holds no GIL, else the thread
// that is to go on in the meantime could not, and it still sees signals, else Ctrl-C would come
// only behind the wait. A child process has none of its parent's runs, so that it is refused.
#pragma once

#include <cstddef>

#include <pybind11/pybind11.h>

#include "graph/run_events.h"

namespace dlprim::bindings {

// Of one run. Whoever waits does so without the GIL, and sees Python's signals.
class PyRunEvents {
public:
    PyRunEvents();
    RunEvents& begin();
    void end() { core_.end(); }
    // Whether an array of the run is final; false after so many seconds, or where it never will be.
    bool wait(std::size_t array, double seconds);

private:
    void require_own_process() const;

    RunEvents core_;
    long process_;
};

// Ends events, where there are any, with the run they are of, however that ends.
class EndOfEvents {
public:
    explicit EndOfEvents(PyRunEvents* events) : events_(events) {}
    ~EndOfEvents() {
        if (events_ != nullptr) events_->end();
    }
    EndOfEvents(const EndOfEvents&) = delete;
    EndOfEvents& operator=(const EndOfEvents&) = delete;

private:
    PyRunEvents* events_;
};

}  // namespace dlprim::bindings
