// How many CPUs this process may use, and so how many threads it has unless somebody names another
// number: those of its affinity mask, no more than its control group's quota pays for, and its
// share of them where the ranks of an MPI program have them together. What is read from files and
// the environment comes through functions, so that any machine can be tested on any other.
#pragma once

#include <bitset>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace dlprim {

using CpuMask = std::bitset<1024>;

// That the main thread may run on, which `taskset -p` and schedulers of clusters set.
CpuMask cpus_of_process();
// Of a thread by the kernel's number, 0 for the calling one. To set them does nothing where the
// system refuses, as for CPUs that are offline.
CpuMask cpus_of_thread(int thread);
void set_cpus_of_thread(int thread, const CpuMask& cpus);
// Unless that would leave none.
CpuMask without(CpuMask cpus, int cpu);

// The text of a file, empty where there is none.
using FileText = std::function<std::string(const std::string& path)>;
// The value of an environment variable of a process, 0 for this one; nothing where it is not set.
using Variable = std::function<std::optional<std::string>(int process, const std::string& name)>;

// CPUs that the quotas of the process's control groups (version 1 or 2) and of those around them
// pay for; nothing without a quota.
std::optional<double> cpu_quota(const FileText& text_of);

struct Ranks {
    int count = 1;              // on this node
    std::string variable = {};  // that says so, empty outside MPI
};

// As Open MPI, MPICH, Intel MPI and Slurm tell the processes that they start.
Ranks ranks_on_node(const Variable& variable);

// CPUs for each of `ranks` processes that are bound to `own` CPUs each, of `all` that their
// launcher may use: those bound to the same ones share them, at least one each.
int share_of_rank(int own, int all, int ranks);

struct UsableCpus {
    CpuMask mask = {};
    int count = 1;          // that the mask and the quota allow
    bool is_quota = false;  // which of the two is less
    int share = 1;          // of them, beside the other ranks of the node
};

UsableCpus usable_cpus();

// In a child of fork, whose parent's threads may have been looking at them.
void forget_groups();

// For people: where the share comes from.
std::string reason_for(const UsableCpus& cpus);

}  // namespace dlprim
