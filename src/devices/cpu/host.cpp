// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/host.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace apus::cpu {

namespace {
namespace fs = std::filesystem;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number after "Name:" in /proc/meminfo or /proc/self/status, in bytes (the files say kB); -1 when absent.
int64_t proc_kb(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(name + ":", 0) == 0) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  return -1;
}

int64_t number_in(const fs::path& path) {
  const std::string line = first_line(path);
  return line.empty() || line[0] < '0' || line[0] > '9' ? kNone : std::strtoll(line.c_str(), nullptr, 10);
}

// This process's folder of a control group controller, version 2 ("") or 1 ("memory", "cpu").
fs::path group_path(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string names = "," + line.substr(a + 1, b - a - 1) + ",";
    if (names == "," + controller + "," ||
        (!controller.empty() && names.find("," + controller + ",") != std::string::npos))
      return line.substr(b + 1);
  }
  return "/";
}

struct Group {
  int64_t limit = kNone, used = 0;  // bytes; `used` without what can be dropped
};

int64_t droppable(const fs::path& stat) {
  std::ifstream in(stat);
  std::string key;
  int64_t value = 0;
  while (in >> key >> value)
    if (key == "inactive_file" || key == "total_inactive_file") return value;
  return 0;
}

// The tightest memory limit on the way from this process's group up to the root.
Group memory_group() {
  Group tightest;
  const auto look = [&](const fs::path& root, fs::path group, const char* limit_file, const char* used_file) {
    for (;; group = group.parent_path()) {
      const fs::path dir = root / group.relative_path();
      const int64_t limit = number_in(dir / limit_file);
      if (limit < tightest.limit) {
        const int64_t used = number_in(dir / used_file);
        tightest = {limit, used == kNone ? 0 : std::max<int64_t>(0, used - droppable(dir / "memory.stat"))};
      }
      if (group == "/" || group.empty()) return;
    }
  };
  look("/sys/fs/cgroup", group_path(""), "memory.max", "memory.current");
  look("/sys/fs/cgroup/memory", group_path("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes");
  return tightest;
}

double cpu_quota() {  // in cores; infinity when there is none
  std::istringstream v2(first_line(fs::path("/sys/fs/cgroup") / group_path("").relative_path() / "cpu.max"));
  double quota = 0, period = 0;
  if (v2 >> quota >> period && period > 0) return quota / period;
  const fs::path v1 = fs::path("/sys/fs/cgroup/cpu") / group_path("cpu").relative_path();
  const int64_t q = number_in(v1 / "cpu.cfs_quota_us"), p = number_in(v1 / "cpu.cfs_period_us");
  return q != kNone && p != kNone && p > 0 ? static_cast<double>(q) / static_cast<double>(p)
                                           : std::numeric_limits<double>::infinity();
}
}  // namespace

int64_t memory_total() { return std::min(proc_kb("/proc/meminfo", "MemTotal"), memory_group().limit); }

int64_t memory_free() {
  const Group group = memory_group();
  const int64_t machine = proc_kb("/proc/meminfo", "MemAvailable");
  return group.limit == kNone ? machine : std::clamp<int64_t>(group.limit - group.used, 0, machine);
}

int64_t peak_resident() { return proc_kb("/proc/self/status", "VmHWM"); }

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0 || line.rfind("Model Name", 0) == 0)
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "processor of unknown model";
}

// Hardware threads of one core count once: arithmetic gains nothing from the second.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  std::set<std::string> distinct;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string siblings = first_line(str("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    distinct.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  const int cores = static_cast<int>(distinct.size());
  return std::max(1, std::min(cores, static_cast<int>(std::min(1e6, std::ceil(cpu_quota())))));
}

bool huge_pages_possible() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  return !line.empty() && line.find("[never]") == std::string::npos;
}

Topology numa_topology() {
  Topology t;
  std::vector<fs::path> nodes;
  std::error_code ignored;
  for (int i = 0; fs::exists(fs::path(str("/sys/devices/system/node/node", i)), ignored); ++i)
    nodes.push_back(str("/sys/devices/system/node/node", i));
  for (size_t i = 0; i < nodes.size(); ++i) {
    t.names.push_back(str("NUMA", i));
    t.cpu_affinity.push_back(first_line(nodes[i] / "cpulist"));
    std::istringstream distances(first_line(nodes[i] / "distance"));
    std::vector<std::string> row(nodes.size(), "?");
    for (size_t j = 0; j < nodes.size(); ++j)
      if (std::string d; distances >> d) row[j] = i == j ? "X" : d;
    t.link.push_back(row);
  }
  t.legend = {{"X", "the node itself"}, {"number", "the firmware's relative distance of two NUMA nodes (10: local)"}};
  return t;
}

std::string library_of(const char* symbol) {
  Dl_info info{};
  void* address = dlsym(RTLD_DEFAULT, symbol);
  if (!address || !dladdr(address, &info) || !info.dli_fname) return "";
  std::error_code failed;
  const fs::path path = fs::canonical(info.dli_fname, failed);
  return failed ? std::string(info.dli_fname) : path.string();
}

std::string blas_name() {
  const std::string path = library_of("sgemm_"), file = fs::path(path).filename().string();
  if (path.find("openblas") != std::string::npos) return "OpenBLAS";
  // pip's torch carries MKL inside.
  if (path.find("mkl") != std::string::npos || file.rfind("libtorch", 0) == 0) return "MKL";
  if (path.find("blis") != std::string::npos) return "BLIS";
  if (path.find("atlas") != std::string::npos) return "ATLAS";
  if (file.rfind("libblas.so", 0) == 0) return "reference BLAS";
  return file.empty() ? "none found" : file;
}

Check blas_check() {
  Check check{"BLAS under libtorch", Check::State::Ok, blas_name(), "OpenBLAS, MKL or BLIS", ""};
  if (check.found == "reference BLAS") {
    check.state = Check::State::Warn;
    check.found += str(" (", library_of("sgemm_"), ")");
    check.hint =
        "f32 matrix multiplications run 30 to 50 times slower than they could: apt-get install libopenblas0-pthread "
        "(or dnf install openblas), and see that `update-alternatives --display libblas.so.3-x86_64-linux-gnu` chooses "
        "it";
  } else if (check.found == "none found") {
    check.state = Check::State::Skipped;
    check.hint = "no library here shows the symbol sgemm_; libtorch may carry its BLAS hidden inside";
  }
  return check;
}

}  // namespace apus::cpu
