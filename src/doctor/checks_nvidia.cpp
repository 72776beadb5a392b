// SPDX-License-Identifier: Apache-2.0
// The NVIDIA stack: driver, its libraries, and what torch wants of them.
#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "doctor/checks.h"
#include "doctor/elf.h"
#include "doctor/inventory.h"
#include "doctor/libraries.h"
#include "doctor/versions.h"

namespace apus {

namespace {
using State = Check::State;

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Jan ..."
std::string kernel_driver(const Host& host) {
  const std::string line = host.first_line("/proc/driver/nvidia/version");
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string word = line.substr(at, end - at);
    at = end + 1;
    if (word.find('.') != std::string::npos && Version::parse(word)) return word;
  }
  return "";
}

// The version behind "libcuda.so.1" -> "libcuda.so.570.86.15".
std::string file_version(const Host& host, const Host::Path& path) {
  const std::string name = host.resolved(path).filename().string();
  const size_t so = name.find(".so.");
  return so == std::string::npos ? "" : name.substr(so + 4);
}

Check library_check(const Host& host, const std::string& name, const std::string& symbol, const std::string& driver) {
  Check c{name, State::Ok, "", "", ""};
  const auto places = find_library(host, name);
  if (places.empty()) {
    c.state = State::Fail, c.found = "not found", c.wanted = "the driver's " + name;
    c.hint = "in a container: docker run --gpus all (NVIDIA container toolkit); on the host: install the driver";
    return c;
  }
  const LibraryFile file = read_library(host.real(places.front()));
  c.found = host.resolved(places.front()).string();
  if (!file.elf || !file.elf->defines(symbol)) {
    c.state = State::Fail, c.wanted = "a library with " + symbol;
    c.hint = file.elf
                 ? "it lacks " + symbol + ": a stub of the toolkit stands before the driver's own in LD_LIBRARY_PATH?"
                 : file.why_not;
  } else if (const std::string version = file_version(host, places.front());
             !driver.empty() && version.find('.') != std::string::npos && version != driver) {
    c.state = State::Fail, c.wanted = str("the library of driver ", driver);
    c.hint =
        str("kernel module ", driver, " and library ", version,
            " differ (\"Driver/library version mismatch\"): reboot after a driver update, or start the container anew");
  }
  return c;
}

Check cuda_check(const std::string& driver, const PythonFacts& python) {
  Check c{"driver for torch's CUDA", State::Skipped, "no CUDA build of torch", "", ""};
  if (python.torch_cuda.empty()) return c;
  const std::string least = least_nvidia_driver(python.torch_cuda);
  c.state = State::Ok, c.found = str("driver ", driver.empty() ? "unknown" : driver, ", CUDA ", python.torch_cuda),
  c.wanted = least.empty() ? "" : "driver " + least;
  if (!least.empty() && !driver.empty() && older(driver, least)) {
    c.state = State::Fail;
    c.hint = str("update the driver, or install a torch built for an older CUDA");
  }
  return c;
}
}  // namespace

std::vector<Check> nvidia_checks(const Host& host, const PythonFacts& python) {
  const int nodes = nvidia_nodes(host), cards = pci_devices(host, "0x10de", "0x03");
  if (nodes == 0 && cards == 0) return {{"NVIDIA GPU", State::Skipped, "none in this machine", "", ""}};
  const std::string driver = kernel_driver(host);
  std::vector<Check> all;
  Check& seen = all.emplace_back(Check{
      "NVIDIA GPU", State::Ok,
      str(nodes, " of ", std::max(nodes, cards), " usable; driver ", driver.empty() ? "unknown" : driver), "", ""});
  if (nodes == 0) {
    seen.state = State::Fail, seen.wanted = "/dev/nvidia0";
    seen.hint = "in a container: docker run --gpus all; on the host: install the driver, then nvidia-modprobe";
    return all;
  }
  all.push_back(library_check(host, "libcuda.so.1", "cuInit", driver));
  all.push_back(library_check(host, "libnvidia-ml.so.1", "nvmlInit_v2", driver));
  all.push_back(cuda_check(driver, python));
  all.push_back(visibility_check(host, "CUDA_VISIBLE_DEVICES", nodes, false));
  for (const auto& group : inventory(host)) {
    if (group.kind != "cuda") continue;
    if (!group.note.empty() && !group.devices.empty()) all.push_back({"MIG", State::Ok, group.note, "", ""});
    if (!group.note.empty() && group.devices.empty())
      all.push_back({"nvidia-smi", State::Fail, group.note, "", "the driver does not answer: dmesg | grep -i nvrm"});
    for (const Status& s : group.devices) {
      Check c{str("cuda:", s.index), s.health == "OK" ? State::Ok : State::Warn,
              str(s.name, ", ", s.health, ", ", bytes_text(s.memory_used), " of ", bytes_text(s.memory_total), " used"),
              "", ""};
      if (c.state == State::Warn)
        c.hint = "nvidia-smi -q -d ECC, dmesg | grep Xid; leave it out with CUDA_VISIBLE_DEVICES until it is mended";
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace apus
