// Which order of the loops is best, from arithmetic alone. For every cache the model finds the
// outermost level of the nest below which all that is touched fits, and counts the bytes that
// then have to be brought in: what a level's working set holds, times how often it changes. (The
// idea of ranking orders by the working sets of their levels is PolyScientist's, arXiv 2002.02145.)
// A schedule is never chosen by the number of threads, so that results do not depend on it;
// schedules that leave little to share are marked down.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/machine.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim {

// Of a cache, the part that operands may count on.
double usable(double cache);

// What a computation loses whose bytes come from beyond the L2 cache, and of these from beyond L3.
double cycles_beyond_l2(double into_l2, double into_l3);

// Operations of products of elements of this type.
double flops_per_cycle(DType dtype, const Machine& machine);

// What a cache brings in.
struct MovedBytes {
    double operands = 0;  // of A and B
    double result = 0;    // of C, once

    double total() const { return operands + 2 * result; }  // C is read and written
};

// What the model counts.
struct ScheduleTraffic {
    double flops = 0;
    double calls = 0;  // of the body
    MovedBytes into_l1 = {};
    MovedBytes into_l2 = {};
    MovedBytes into_l3 = {};
    bool fetched = false;          // what comes from memory is fetched ahead of its call
    double tasks = 0;              // that threads can share
    double whole_tasks = 0;        // the same work in tasks of full size
    bool rereads_windows = false;  // from beyond the L1 cache, for every register tile
    double depth = 0;              // products that a kernel call sums up in an element of C
    // Of rows of a transposed A that are far apart.
    double pieces_into_l1 = 0;
    double pieces_into_l2 = 0;
};

ScheduleTraffic schedule_traffic(const Contraction& contraction, const Schedule& schedule,
                                 const Machine& machine);

// Estimated cycles of one core. Only comparisons of schedules of one contraction mean something.
double schedule_cost(const Contraction& contraction, const Schedule& schedule,
                     const Machine& machine);

// Schedules from the cheapest on, at most `count` and at least one.
std::vector<Schedule> ranked_schedules(const Contraction& contraction, const Machine& machine,
                                       int count);

}  // namespace dlprim
