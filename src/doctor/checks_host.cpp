// SPDX-License-Identifier: Apache-2.0
// The machine itself: memory, cores, limits, disks, ports.
#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "doctor/checks.h"

namespace apus {

namespace {
using State = Check::State;
constexpr int64_t kGigabyte = int64_t{1} << 30;

Check memory_check(const Host& host) {
  Check c{"memory", State::Ok, str(bytes_text(host.memory_free), " free of ", bytes_text(host.memory_total)), "", ""};
  if (host.memory_free < 2 * kGigabyte) {
    c.state = State::Warn, c.wanted = "2 GiB free";
    c.hint = "a model of a billion parameters needs 2 GiB in bf16: stop what else runs, or raise the container's limit";
  }
  return c;
}

Check cores_check(const Host& host) {
  Check c{"cores", State::Ok, str(host.usable_cores, " usable (within affinity and the container's quota)"), "", ""};
  const std::string threads = host.variable("OMP_NUM_THREADS");
  if (const int asked = std::atoi(threads.c_str()); asked > host.usable_cores) {
    c.state = State::Warn, c.wanted = str("OMP_NUM_THREADS at most ", host.usable_cores);
    c.found += str(", OMP_NUM_THREADS=", threads);
    c.hint =
        "threads without a core of their own wait for each other: lower OMP_NUM_THREADS, or widen taskset / the "
        "container's --cpus";
  }
  return c;
}

// How many numbers are in "0-3,8", the kernel's way to write a set; 0 when it is none.
int numbers_in(const std::string& list) {
  int count = 0;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (read < 1) return 0;
    count += read == 2 ? std::clamp(last - first + 1, 0, 1 << 16) : 1;
  }
  return count;
}

Check affinity_check(const Host& host) {
  const std::string status = host.text("/proc/self/status").value_or(""), label = "Cpus_allowed_list:";
  const size_t at = status.find(label);
  std::string allowed = at == std::string::npos ? "" : status.substr(at + label.size());
  allowed = allowed.substr(0, allowed.find('\n'));
  allowed.erase(0, allowed.find_first_not_of(" \t"));
  const std::string online = host.first_line("/sys/devices/system/cpu/online");
  const int own = numbers_in(allowed), all = numbers_in(online);
  if (own == 0 || all == 0) return {"CPU affinity", State::Skipped, "not told by this system", "", ""};
  Check c{"CPU affinity", State::Ok, str("cores ", allowed.substr(0, 80), " of ", online.substr(0, 80)), "", ""};
  if (own == 1 && all > 1) {
    c.state = State::Warn, c.wanted = "several cores";
    c.hint =
        "this shell is bound to one core: start without taskset or numactl, or widen the container's --cpuset-cpus";
  } else if (own < all) {
    c.hint = "the launcher divides these among the ranks";
  }
  return c;
}

Check open_files_check(const Host& host) {
  Check c{"open files", State::Ok, host.open_files == INT64_MAX ? "unlimited" : str(host.open_files), "4096", ""};
  if (host.open_files < 4096) {
    c.state = State::Warn;
    c.hint =
        "servers and many data shards need more: ulimit -n 65536 (for good: /etc/security/limits.conf; docker: "
        "--ulimit nofile=65536)";
  }
  return c;
}

Check shared_memory_check(const Host& host) {
  const auto space = host.space("/dev/shm");
  if (!space || !host.exists("/dev/shm"))
    return {"shared memory", State::Warn, "no /dev/shm", "1 GiB", "mount a tmpfs at /dev/shm"};
  Check c{"shared memory", State::Ok,
          str(bytes_text(space->free), " free of ", bytes_text(space->total), " in /dev/shm"), "1 GiB", ""};
  if (space->total < kGigabyte) {
    c.state = State::Warn;
    c.hint =
        "processes of one run exchange data there, and containers get 64 MB by default: docker run --shm-size=16g (or "
        "--ipc=host)";
  }
  return c;
}

Check huge_pages_check(const Host& host) {
  const std::string line = host.first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (line.empty()) return {"huge pages", State::Skipped, "not told by this kernel", "", ""};
  const size_t open = line.find('['), close = line.find(']');
  const std::string mode =
      open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1) : line.substr(0, 40);
  Check c{"huge pages", State::Ok, mode, "madvise or always", ""};
  if (mode == "never") {
    c.state = State::Warn;
    c.hint =
        "fresh memory costs ten times more to touch: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (on "
        "the host, as root)";
  }
  return c;
}

Check disk_check(const Host& host, const std::string& name, const std::string& path, int64_t wanted) {
  const auto space = host.space(path);
  if (!space) return {name, State::Skipped, path + " cannot be looked at", "", ""};
  Check c{name, State::Ok, str(bytes_text(space->free), " free at ", path), "", ""};
  if (space->free < wanted) {
    c.state = space->free < wanted / 16 ? State::Fail : State::Warn, c.wanted = bytes_text(wanted);
    c.hint =
        "checkpoints and downloads will not fit: make room, or choose another folder (--output_dir, MODELSCOPE_CACHE, "
        "HF_HOME, TMPDIR)";
  }
  return c;
}

std::string cache_folder(const Host& host) {
  for (const char* name : {"MODELSCOPE_CACHE", "HF_HOME", "XDG_CACHE_HOME"})
    if (const std::string folder = host.variable(name); !folder.empty()) return folder;
  const std::string home = host.variable("HOME");
  return home.empty() ? "/root/.cache" : home + "/.cache";
}

Check ports_check(const Host& host) {
  std::set<int> ports{29500, 8000};
  const std::string master = host.variable("MASTER_PORT");
  Check c{"ports", State::Ok, "", "free", ""};
  if (!master.empty()) {
    const int port = std::atoi(master.c_str());
    if (port < 1 || port > 65535)
      return {"ports", State::Fail, "MASTER_PORT=" + master, "1 to 65535", "unset MASTER_PORT or give it a number"};
    ports.insert(port);
  }
  std::vector<std::string> free, taken;
  for (const int port : ports)
    (!host.port_is_free || host.port_is_free(port) ? free : taken).push_back(std::to_string(port));
  c.found = str(free.empty() ? "" : join(free) + " free", !free.empty() && !taken.empty() ? ", " : "",
                taken.empty() ? "" : join(taken) + " taken");
  if (!taken.empty()) {
    c.state = State::Warn;
    c.hint =
        "another program listens there (`ss -ltnp` names it): MASTER_PORT=<number> for training on several devices, "
        "--port for a server";
  }
  return c;
}

Check clock_check(const Host& host) {
  constexpr int64_t kThen = 1735689600, kLater = 2524608000;  // 2025 and 2050
  Check c{"clock", State::Ok, local_time("%Y-%m-%d %H:%M:%S"), "", ""};
  if (host.now < kThen || host.now > kLater) {
    c.state = State::Fail, c.wanted = "today";
    c.hint = "certificates of every hub are refused while the clock is wrong: chronyc makestep, or date -s";
  }
  return c;
}

}  // namespace

Check visibility_check(const Host& host, const std::string& variable, int present, bool ascending) {
  const auto set = host.env.find(variable);
  if (set == host.env.end()) return {variable, State::Ok, "not set: all devices", "", ""};
  Check c{variable, State::Ok, set->second.empty() ? "empty: no device" : set->second.substr(0, 200), "", ""};
  const auto bad = [&](State state, const std::string& wanted, const std::string& hint) {
    c.state = state, c.wanted = wanted, c.hint = hint;
    return c;
  };
  const std::string& list = set->second;
  if (list.empty() || list == "-1")
    return bad(State::Warn, "", "no device can be seen; unset it, or name some: " + variable + "=0,1");
  if (list.find("GPU-") == 0 || list.find("MIG-") == 0) return c;  // by name rather than by number
  std::set<int> seen;
  int last = -1;
  bool sorted = true;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    at = end + 1;
    if (word.empty() || word.size() > 4 || word.find_first_not_of("0123456789") != std::string::npos)
      return bad(State::Fail, "numbers with commas between, as 0,1,2",
                 str("'", word, "' is no device number; the list ends there for the driver"));
    const int id = std::atoi(word.c_str());
    if (present >= 0 && id >= present)
      return bad(State::Fail, str("numbers below ", present),
                 str("device ", id, " does not exist: ", present, " are here"));
    if (!seen.insert(id).second) return bad(State::Fail, "each number once", str("device ", id, " stands twice in it"));
    sorted = sorted && id > last, last = id;
  }
  if (ascending && !sorted)
    return bad(State::Warn, "ascending numbers", "some releases of the driver take only ascending lists");
  const std::string ranks = host.variable("NPROC_PER_NODE");
  if (!ranks.empty() && std::atoi(ranks.c_str()) != static_cast<int>(seen.size()))
    return bad(State::Warn, str("NPROC_PER_NODE=", seen.size()),
               str("NPROC_PER_NODE is ", ranks, ", but ", seen.size(), " devices are visible"));
  return c;
}

std::vector<Check> host_checks(const Host& host, const HostPlaces& places) {
  return {memory_check(host),
          cores_check(host),
          affinity_check(host),
          open_files_check(host),
          shared_memory_check(host),
          huge_pages_check(host),
          disk_check(host, "disk for outputs", places.output_dir, 10 * kGigabyte),
          disk_check(host, "disk for caches", cache_folder(host), 10 * kGigabyte),
          disk_check(host, "disk for temporary files",
                     host.variable("TMPDIR").empty() ? "/tmp" : host.variable("TMPDIR"), kGigabyte),
          ports_check(host),
          clock_check(host)};
}

}  // namespace apus
