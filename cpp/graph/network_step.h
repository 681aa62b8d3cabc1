// What a network runs one after the other: a step says which values it reads and writes, which is
// all that a plan of memory has to know, and runs on their addresses. Any kind of work becomes a
// step by being wrapped in a function, so that a new kind touches nothing here.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dlprim {

// First element of a value, as a pointer to whatever type its elements have in C++.
struct Address {
    char* data = nullptr;

    template <class T>
    operator T*() const {
        return reinterpret_cast<T*>(data);
    }
};

// Of the values of a run, by their numbers; null for -1.
struct Addresses {
    char* const* of_values = nullptr;

    Address operator[](int value) const { return {value < 0 ? nullptr : of_values[value]}; }
};

struct NetworkStep {
    std::string kind = {};   // "conv2d"
    std::string label = {};  // whose it is, in what a user reads
    std::vector<int> reads = {};
    std::vector<int> writes = {};
    // Of those that are read: what a result of its size may lie on, as often as it is read so.
    std::vector<int> replaced = {};
    std::string inside = {};  // lines on what it is made of, for who reads what runs
    // Operations, 0 where the time goes with the bytes of the values.
    double flops = 0;
    bool alone = false;  // it runs beside no other step: a function that is not the library's
    // May be called by several threads at once.
    std::function<void(const Addresses&)> run = {};
};

// "step conv1 (conv2d)"
std::string name_of(const NetworkStep& step);

// Whether the step may write on a value wherever it reads it.
bool may_replace(const NetworkStep& step, int value);

}  // namespace dlprim
