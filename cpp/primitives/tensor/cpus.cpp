#include "primitives/tensor/cpus.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string_view>
#include <vector>

#include <sched.h>

namespace dlprim {
namespace {

static_assert(CPU_SETSIZE == CpuMask{}.size());

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The beginning of a file, on the stack: the CPUs are counted again while calls run, which allocate
// nothing.
class FileBeginning {
public:
    explicit FileBeginning(const char* path) {
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return;
        size_ = std::max<ssize_t>(read(file, text_.data(), text_.size() - 1), 0);
        close(file);
    }

    std::string_view text() const { return {text_.data(), static_cast<std::size_t>(size_)}; }

private:
    std::array<char, 4096> text_ = {};
    ssize_t size_ = 0;
};

// "quota period", of which a group without a quota has "max" or -1; or the two in files of their
// own.
std::optional<double> ratio(std::string_view quota, std::string_view period) {
    const auto number = [](std::string_view text) {
        double value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    };
    if (period.empty()) {
        period = quota.substr(std::min(quota.find(' '), quota.size()));
        period.remove_prefix(std::min<std::size_t>(period.size(), 1));
    }
    const double used = number(quota), all = number(period);
    if (used <= 0 || all <= 0) return std::nullopt;
    return used / all;
}

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
    if (!a || !b) return a ? a : b;
    return std::min(*a, *b);
}

// Where the quota of a control group stands.
struct QuotaFiles {
    std::string quota = {};
    std::string period = {};  // empty where the same file has it
};

// Of the group at `path` below a mount and of all around it. In a container the path may be the
// host's, of which the mount shows the end only. Files that are not there may come.
void add_files_along(const std::string& mount, std::string path, std::vector<QuotaFiles>& files) {
    for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        const std::string folder = mount + path;
        files.push_back({folder + "/cpu.max"});
        files.push_back({folder + "/cpu.cfs_quota_us", folder + "/cpu.cfs_period_us"});
        if (path.empty()) return;
        path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
}

bool lists(const std::string& controllers, std::string_view wanted) {
    std::istringstream each(controllers);
    for (std::string name; std::getline(each, name, ',');) {
        if (name == wanted) return true;
    }
    return false;
}

// Of a list as "4(x2),3": nodes one behind the other, some with equal numbers.
int number_of_node(const std::string& numbers, int node) {
    std::istringstream each(numbers);
    int number = 0;
    for (std::string entry; std::getline(each, entry, ',') && node >= 0;) {
        number = std::atoi(entry.c_str());
        const std::size_t times = entry.find("(x");
        node -= times == std::string::npos ? 1 : std::atoi(entry.c_str() + times + 2);
    }
    return number;
}

std::optional<std::string> variable_of(int process, const std::string& name) {
    if (process == 0) {
        const char* const value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }
    std::istringstream entries(text_of_file("/proc/" + std::to_string(process) + "/environ"));
    for (std::string entry; std::getline(entries, entry, '\0');) {
        if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
    return std::nullopt;
}

int parent_of(int process) {
    const std::string text = text_of_file("/proc/" + std::to_string(process) + "/stat");
    const std::size_t name_end = text.rfind(')');  // a program's name may hold anything
    if (name_end == std::string::npos) return 0;
    std::istringstream rest(text.substr(name_end + 1));
    std::string state;
    int parent = 0;
    rest >> state >> parent;
    return parent;
}

// Of the nearest ancestor that is no rank itself, as a shell that a rank runs in is.
CpuMask cpus_of_launcher(const std::string& variable) {
    int process = getppid();
    while (process > 0 && variable_of(process, variable)) process = parent_of(process);
    return process > 0 ? cpus_of_thread(process) : CpuMask{};
}

std::vector<QuotaFiles> quota_files(std::string_view groups) {
    std::vector<QuotaFiles> files;
    std::istringstream lines{std::string(groups)};
    for (std::string line; std::getline(lines, line);) {  // "number:controllers:path"
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1), mounts = "/sys/fs/cgroup";
        if (controllers.empty()) add_files_along(mounts, path, files);
        if (!lists(controllers, "cpu")) continue;
        add_files_along(mounts + "/" + controllers, path, files);
        if (controllers != "cpu") add_files_along(mounts + "/cpu", path, files);
    }
    return files;
}

constexpr const char* kGroups = "/proc/self/cgroup";

// Where the quotas stand that hold for the process.
struct KnownGroups {
    std::mutex mutex = {};
    std::string text = {};  // of kGroups when they were looked for
    std::vector<QuotaFiles> files = {};
};

// Never destroyed: calls run while the process exits.
std::atomic<KnownGroups*> known_groups{nullptr};

KnownGroups& groups() {
    KnownGroups* known = known_groups.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    auto* const mine = new KnownGroups;
    if (known_groups.compare_exchange_strong(known, mine)) return *mine;
    delete mine;
    return *known;
}

// The same as cpu_quota() of this machine's files, which are looked for again only when the process
// has come to other groups.
std::optional<double> present_quota() {
    KnownGroups& known = groups();
    const std::lock_guard lock(known.mutex);
    const FileBeginning now(kGroups);
    if (now.text() != known.text) {
        known.text = now.text();
        known.files = quota_files(known.text);
    }
    std::optional<double> found;
    for (const QuotaFiles& it : known.files) {
        const FileBeginning quota(it.quota.c_str());
        const FileBeginning period(it.period.c_str());
        found = least(found, ratio(quota.text(), period.text()));
    }
    return found;
}

std::string counted(int count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

CpuMask cpus_of_thread(int thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CpuMask cpus;
    if (sched_getaffinity(thread, sizeof(set), &set) != 0) return cpus;
    for (std::size_t i = 0; i < cpus.size(); ++i) cpus[i] = CPU_ISSET(i, &set);
    return cpus;
}

void forget_groups() { known_groups = nullptr; }

CpuMask cpus_of_process() { return cpus_of_thread(getpid()); }

void set_cpus_of_thread(int thread, const CpuMask& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < cpus.size(); ++i) {
        if (cpus[i]) CPU_SET(i, &set);
    }
    sched_setaffinity(thread, sizeof(set), &set);
}

CpuMask without(CpuMask cpus, int cpu) {
    if (cpu >= 0 && cpus.count() > 1) cpus.reset(static_cast<std::size_t>(cpu));
    return cpus;
}

std::optional<double> cpu_quota(const FileText& text_of) {
    std::optional<double> found;
    for (const QuotaFiles& it : quota_files(text_of(kGroups))) {
        found = least(found, ratio(text_of(it.quota), it.period.empty() ? "" : text_of(it.period)));
    }
    return found;
}

Ranks ranks_on_node(const Variable& variable) {
    for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
        if (const auto value = variable(0, name)) {
            return {std::max(std::atoi(value->c_str()), 1), name};
        }
    }
    const char* const slurm = "SLURM_STEP_TASKS_PER_NODE";
    if (const auto value = variable(0, slurm)) {
        const int node = std::atoi(variable(0, "SLURM_NODEID").value_or("0").c_str());
        return {std::max(number_of_node(*value, node), 1), slurm};
    }
    return {};
}

int share_of_rank(int own, int all, int ranks) {
    const double together = static_cast<double>(ranks) * own / std::max(all, own);
    const auto sharing = std::max(static_cast<int>(std::ceil(together - 1e-9)), 1);
    return std::max(own / sharing, 1);
}

UsableCpus usable_cpus() {
    UsableCpus found{.mask = cpus_of_process()};
    const auto bound = std::max(static_cast<int>(found.mask.count()), 1);
    found.count = bound;
    const std::optional<double> quota = present_quota();
    if (quota && std::ceil(*quota) < bound) {
        found.count = std::max(static_cast<int>(std::ceil(*quota)), 1);
        found.is_quota = true;
    }
    static const Ranks ranks = ranks_on_node(variable_of);
    static const CpuMask launcher = ranks.count > 1 ? cpus_of_launcher(ranks.variable) : CpuMask{};
    const auto all = static_cast<int>((found.mask | launcher).count()) - bound + found.count;
    found.share = share_of_rank(found.count, all, ranks.count);
    if (quota) {  // which ranks share that are bound to CPUs of their own, too
        found.share =
            std::min(found.share, std::max(static_cast<int>(std::ceil(*quota)) / ranks.count, 1));
    }
    return found;
}

std::string reason_for(const UsableCpus& cpus) {
    std::string reason = cpus.is_quota
                             ? "its control group has a quota of " + counted(cpus.count, "CPU")
                             : "this process may use " + counted(cpus.count, "CPU");
    if (cpus.share < cpus.count) {
        const Ranks ranks = ranks_on_node(variable_of);
        reason += ", which the " + counted(ranks.count, "rank") + " of this node (" +
                  ranks.variable + ") share";
    }
    return reason;
}

}  // namespace dlprim
