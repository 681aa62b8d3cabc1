#include "jit/profile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "jit/cache.h"
#include "jit/verbose.h"

namespace dlprim {
namespace {

// Of the monotonic clock, which `perf record -k mono` uses too.
std::uint64_t nanoseconds_now() {
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(time.count());
}

// tools/perf/Documentation/jitdump-specification.txt in the sources of Linux.
struct DumpHeader {
    std::uint32_t magic = 0x4A695444;  // "JiTD"
    std::uint32_t version = 1;
    std::uint32_t size = 40;
    std::uint32_t machine = 62;  // EM_X86_64 of ELF
    std::uint32_t padding = 0;
    std::uint32_t process = static_cast<std::uint32_t>(getpid());
    std::uint64_t nanoseconds = nanoseconds_now();
    std::uint64_t flags = 0;
};
static_assert(sizeof(DumpHeader) == 40);

struct LoadRecord {
    std::uint32_t kind = 0;  // code is loaded
    std::uint32_t size;      // with the name, its final zero and the code, which follow
    std::uint64_t nanoseconds = nanoseconds_now();
    std::uint32_t process = static_cast<std::uint32_t>(getpid());
    std::uint32_t thread = static_cast<std::uint32_t>(gettid());
    std::uint64_t address;
    std::uint64_t code_address = address;
    std::uint64_t code_size;
    std::uint64_t index;
};
static_assert(sizeof(LoadRecord) == 56);

struct Settings {
    bool perf_map = false;
    bool jit_dump = false;
    bool code_files = false;
    std::filesystem::path folder;  // absolute: the program may change its current one
};

Settings read_settings() {
    Settings settings;
    const char* variable = std::getenv("DLPRIM_JIT_PROFILE");
    std::string_view rest = variable == nullptr ? "" : variable;
    while (!rest.empty()) {
        const std::string_view value = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(value.size() + 1, rest.size()));
        if (value == "perfmap") {
            settings.perf_map = true;
        } else if (value == "jitdump") {
            settings.jit_dump = true;
        } else {
            throw std::invalid_argument("environment variable DLPRIM_JIT_PROFILE: '" +
                                        std::string(value) +
                                        "' is not a way to profile; expected perfmap, jitdump or "
                                        "both with a comma between");
        }
    }
    const char* folder = std::getenv("DLPRIM_JIT_DUMP");
    settings.code_files = folder != nullptr && *folder != '\0';
    const std::filesystem::path given = settings.code_files ? folder : ".";
    std::error_code ignored;  // whoever writes there notices
    settings.folder = std::filesystem::absolute(given, ignored);
    if (settings.code_files) std::filesystem::create_directories(settings.folder, ignored);
    return settings;
}

const Settings& settings() {
    static const Settings instance = read_settings();
    return instance;
}

std::string bytes_of(const auto& pod) { return {reinterpret_cast<const char*>(&pod), sizeof(pod)}; }

std::string_view text_of(std::span<const std::uint8_t> code) {
    return {reinterpret_cast<const char*>(code.data()), code.size()};
}

// A file that profilers read. Whatever goes wrong with it is one warning, and then silence.
class Output {
public:
    explicit Output(const char* variable) : variable_(variable) {}

    bool is_open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }

    // Not through a link: the names of files in /tmp are known to every user beforehand.
    void open(const std::filesystem::path& path, int flags) {
        path_ = path;
        descriptor_ = ::open(path_.c_str(), flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (!is_open()) warn();
    }

    // In one piece where the system allows, as other writers may append to the same file.
    void write(std::string_view bytes) {
        while (is_open() && !bytes.empty()) {
            const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
            if (written > 0) {
                bytes.remove_prefix(static_cast<std::size_t>(written));
            } else if (written == 0 || errno != EINTR) {
                warn();
                close();
            }
        }
    }

    void close() {
        if (is_open()) ::close(descriptor_);
        descriptor_ = -1;
    }

    void warn() {
        const std::string reason = std::generic_category().message(errno);
        if (!warned_) {
            report(std::string("warning: ") + variable_ + ": cannot write " + path_.string() +
                   ": " + reason);
        }
        warned_ = true;
    }

private:
    const char* variable_;
    std::filesystem::path path_;
    int descriptor_ = -1;
    bool warned_ = false;
};

class Profile {
public:
    void before_fork() { mutex_.lock(); }
    void after_fork_in_parent() { mutex_.unlock(); }
    void after_fork_in_child() {
        jit_dump_.close();
        started_ = false;
        mutex_.unlock();
    }

    void add(const std::string& name, std::span<const std::uint8_t> code) {
        const std::lock_guard lock(mutex_);
        if (settings().perf_map) add_to_perf_map(name, code);
        if (settings().jit_dump) add_to_jit_dump(name, code);
        if (settings().code_files) write_code_file(name, code);
    }

private:
    void add_to_perf_map(const std::string& name, std::span<const std::uint8_t> code) {
        char range[48];
        std::snprintf(range, sizeof range, "%llx %llx ",
                      static_cast<unsigned long long>(address_of(code)),
                      static_cast<unsigned long long>(code.size()));
        perf_map_.open("/tmp/perf-" + std::to_string(getpid()) + ".map", O_WRONLY | O_APPEND);
        perf_map_.write(range + name + "\n");
        perf_map_.close();
    }

    void write_code_file(const std::string& name, std::span<const std::uint8_t> code) {
        code_file_.open(settings().folder / (name + ".bin"), O_WRONLY | O_TRUNC);
        code_file_.write(text_of(code));
        code_file_.close();
    }

    void add_to_jit_dump(const std::string& name, std::span<const std::uint8_t> code) {
        if (!started_) start_jit_dump();
        if (!jit_dump_.is_open()) return;
        const std::size_t size = sizeof(LoadRecord) + name.size() + 1 + code.size();
        const LoadRecord record = {.size = static_cast<std::uint32_t>(size),
                                   .address = address_of(code),
                                   .code_size = code.size(),
                                   .index = index_++};
        std::string bytes = bytes_of(record);
        bytes.append(name.c_str(), name.size() + 1).append(text_of(code));
        jit_dump_.write(bytes);
    }

    void start_jit_dump() {
        started_ = true;
        index_ = 0;
        jit_dump_.open(settings().folder / ("jit-" + std::to_string(getpid()) + ".dump"),
                       O_RDWR | O_TRUNC);
        jit_dump_.write(bytes_of(DumpHeader{}));
        if (!jit_dump_.is_open()) return;
        // perf learns of the file from this mapping, which stays for a perf that attaches later.
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        if (mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, jit_dump_.descriptor(), 0) ==
            MAP_FAILED) {
            jit_dump_.warn();
        }
    }

    static std::uint64_t address_of(std::span<const std::uint8_t> code) {
        return reinterpret_cast<std::uintptr_t>(code.data());
    }

    std::mutex mutex_;
    Output perf_map_{"DLPRIM_JIT_PROFILE=perfmap"};
    Output jit_dump_{"DLPRIM_JIT_PROFILE=jitdump"};
    Output code_file_{"DLPRIM_JIT_DUMP"};
    bool started_ = false;  // in this process, or tried to
    std::uint64_t index_ = 0;
};

}  // namespace

Pages pages_for_profile() { return settings().perf_map ? Pages::own : Pages::shared; }

bool profiles() { return settings().perf_map || settings().jit_dump || settings().code_files; }

void profile(const std::string& name, std::span<const std::uint8_t> code) {
    if (profiles() && !code.empty()) one_of_process<Profile>().add(name, code);
}

}  // namespace dlprim
