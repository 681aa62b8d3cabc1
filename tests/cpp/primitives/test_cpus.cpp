#include <map>
#include <optional>
#include <ostream>
#include <string>

#include <doctest/doctest.h>

#include "primitives/tensor/cpus.h"

namespace dlprim {
namespace {

std::optional<double> quota(const std::map<std::string, std::string>& files) {
    return cpu_quota([&](const std::string& path) {
        const auto found = files.find(path);
        return found == files.end() ? std::string() : found->second;
    });
}

const std::string kGroups = "/proc/self/cgroup", kRoot = "/sys/fs/cgroup";

TEST_CASE("the quota of a control group of version 2 is that of the tightest around it") {
    CHECK(!quota({}));
    CHECK(!quota({{kGroups, "0::/\n"}}));
    CHECK(!quota({{kGroups, "0::/\n"}, {kRoot + "/cpu.max", "max 100000\n"}}));
    CHECK(quota({{kGroups, "0::/\n"}, {kRoot + "/cpu.max", "150000 100000\n"}}) == 1.5);
    CHECK(quota({{kGroups, "0::/a/b\n"},
                 {kRoot + "/a/b/cpu.max", "max 100000\n"},
                 {kRoot + "/a/cpu.max", "400000 100000\n"},
                 {kRoot + "/cpu.max", "800000 100000\n"}}) == 4);
    // In a container: the host's path, of which the mount shows the end.
    CHECK(quota({{kGroups, "0::/docker/77\n"}, {kRoot + "/cpu.max", "200000 100000\n"}}) == 2);
}

TEST_CASE("so is that of version 1, beside other controllers") {
    const std::string groups = "12:cpuset:/x\n4:cpu,cpuacct:/jobs/7\n1:name=systemd:/\n0::/\n";
    const std::string job = kRoot + "/cpu,cpuacct/jobs/7";
    CHECK(quota({{kGroups, groups},
                 {job + "/cpu.cfs_quota_us", "50000\n"},
                 {job + "/cpu.cfs_period_us", "100000\n"}}) == 0.5);
    CHECK(!quota({{kGroups, groups},
                  {job + "/cpu.cfs_quota_us", "-1\n"},
                  {job + "/cpu.cfs_period_us", "100000\n"}}));
    CHECK(quota({{kGroups, groups},
                 {kRoot + "/cpu/jobs/cpu.cfs_quota_us", "300000\n"},
                 {kRoot + "/cpu/jobs/cpu.cfs_period_us", "100000\n"}}) == 3);
    CHECK(!quota({{kGroups, "2:cpuset:/x\n"},
                  {kRoot + "/cpuset/x/cpu.cfs_quota_us", "50000\n"},
                  {kRoot + "/cpuset/x/cpu.cfs_period_us", "100000\n"}}));
}

Ranks ranks(const std::map<std::string, std::string>& variables) {
    return ranks_on_node([&](int, const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
    });
}

TEST_CASE("launchers say how many ranks a node has") {
    CHECK(ranks({}).count == 1);
    CHECK(ranks({}).variable.empty());
    CHECK(ranks({{"MPI_LOCALNRANKS", "4"}}).count == 4);
    CHECK(ranks({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}).count == 3);
    CHECK(ranks({{"MPI_LOCALNRANKS", "nonsense"}}).count == 1);
    const std::string slurm = "SLURM_STEP_TASKS_PER_NODE";
    CHECK(ranks({{slurm, "8"}}).count == 8);
    CHECK(ranks({{slurm, "4(x2),3"}}).count == 4);
    CHECK(ranks({{slurm, "4(x2),3"}, {"SLURM_NODEID", "1"}}).count == 4);
    CHECK(ranks({{slurm, "4(x2),3"}, {"SLURM_NODEID", "2"}}).count == 3);
    // A job's launcher inside a step of Slurm's.
    CHECK(ranks({{slurm, "1"}, {"MPI_LOCALNRANKS", "2"}}).count == 2);
}

TEST_CASE("ranks bound to the same CPUs share them, others keep theirs") {
    CHECK(share_of_rank(64, 64, 4) == 16);  // not bound
    CHECK(share_of_rank(16, 64, 4) == 16);  // 16 each
    CHECK(share_of_rank(32, 64, 4) == 16);  // by sockets
    CHECK(share_of_rank(32, 64, 3) == 16);  // two of them on one socket
    CHECK(share_of_rank(2, 2, 2) == 1);
    CHECK(share_of_rank(1, 2, 2) == 1);
    CHECK(share_of_rank(2, 2, 8) == 1);
    CHECK(share_of_rank(6, 6, 1) == 6);
    CHECK(share_of_rank(6, 0, 2) == 3);  // whose launcher nobody knows
}

TEST_CASE("a mask loses a CPU unless it is the last one") {
    CpuMask two;
    two.set(3).set(700);
    CHECK(without(two, 3) == CpuMask().set(700));
    CHECK(without(CpuMask().set(3), 3) == CpuMask().set(3));
    CHECK(without(two, -1) == two);
}

TEST_CASE("this process may use a CPU") {
    const UsableCpus found = usable_cpus();
    CHECK(found.mask.any());
    CHECK(found.count >= 1);
    CHECK(found.share >= 1);
    CHECK(found.share <= found.count);
    CHECK(!reason_for(found).empty());
}

}  // namespace
}  // namespace dlprim
