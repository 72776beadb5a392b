// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/nvml.h"

#include <dlfcn.h>

#include "base/error.h"

namespace apus::cuda {

namespace {

using Device = void*;
struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct PciInfo {  // nvmlPciInfo_t of the _v3 functions
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct Nvml {
  int (*init)() = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // mW
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, MemoryInfo*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_remote)(Device, unsigned, PciInfo*) = nullptr;
  int (*ancestor)(Device, Device, unsigned*) = nullptr;
  int (*affinity)(Device, unsigned, unsigned long*) = nullptr;
  bool usable = false;
};

const Nvml& nvml() {
  static const Nvml table = [] {
    Nvml t;
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
    const auto find = [&](const char* symbol, auto& function) {
      if (library) function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, symbol));
      return function != nullptr;
    };
    t.usable = find("nvmlInit_v2", t.init) && find("nvmlDeviceGetCount_v2", t.count) &&
               find("nvmlDeviceGetHandleByIndex_v2", t.by_index) && find("nvmlDeviceGetName", t.name) && t.init() == 0;
    find("nvmlSystemGetDriverVersion", t.driver);
    find("nvmlDeviceGetPowerUsage", t.power);
    find("nvmlDeviceGetTemperature", t.temperature);
    find("nvmlDeviceGetUtilizationRates", t.utilization);
    find("nvmlDeviceGetMemoryInfo", t.memory);
    find("nvmlDeviceGetPciInfo_v3", t.pci);
    find("nvmlDeviceGetNvLinkState", t.link_state);
    find("nvmlDeviceGetNvLinkRemotePciInfo_v2", t.link_remote);
    find("nvmlDeviceGetTopologyCommonAncestor", t.ancestor);
    find("nvmlDeviceGetCpuAffinity", t.affinity);
    return t;
  }();
  return table;
}

std::vector<Device> devices() {
  std::vector<Device> out;
  unsigned count = 0;
  if (!nvml().usable || nvml().count(&count) != 0) return out;
  for (unsigned i = 0; i < count; ++i) {
    Device d = nullptr;
    if (nvml().by_index(i, &d) == 0) out.push_back(d);
  }
  return out;
}

constexpr unsigned kMaxLinks = 18;

// Active links from a to the device at `bus`; to a switch, which joins all, when the remote is no GPU of ours.
int links(Device a, const std::string& bus, const std::vector<std::string>& all) {
  int direct = 0, switched = 0;
  for (unsigned link = 0; nvml().link_state && nvml().link_remote && link < kMaxLinks; ++link) {
    unsigned active = 0;
    PciInfo remote{};
    if (nvml().link_state(a, link, &active) != 0 || !active || nvml().link_remote(a, link, &remote) != 0) continue;
    if (bus == remote.bus_id) ++direct;
    bool gpu = false;
    for (const auto& other : all) gpu |= other == remote.bus_id;
    if (!gpu) ++switched;
  }
  return direct ? direct : switched;
}

std::string path_between(Device a, Device b) {
  unsigned level = 0;
  if (!nvml().ancestor || nvml().ancestor(a, b, &level) != 0) return "?";
  switch (level) {  // nvmlGpuTopologyLevel_t
    case 0:
      return "PIX";
    case 10:
      return "PIX";
    case 20:
      return "PXB";
    case 30:
      return "PHB";
    case 40:
      return "NODE";
    default:
      return "SYS";
  }
}

std::string cores_near(Device d) {  // "0-23,48-71"
  constexpr unsigned kWords = 32, kBits = 64;
  unsigned long words[kWords] = {};
  std::string text;
  if (!nvml().affinity || nvml().affinity(d, kWords, words) != 0) return text;
  const auto near = [&](unsigned core) { return core < kWords * kBits && (words[core / kBits] >> (core % kBits) & 1); };
  for (unsigned first = 0; first < kWords * kBits; ++first) {
    if (!near(first)) continue;
    unsigned last = first;
    while (near(last + 1)) ++last;
    text += str(text.empty() ? "" : ",", first, last > first ? str("-", last) : "");
    first = last;
  }
  return text;
}

}  // namespace

std::string nvml_driver_version() {
  char text[96] = "";
  return nvml().usable && nvml().driver && nvml().driver(text, sizeof text) == 0 ? text : "unknown";
}

std::vector<Status> nvml_status() {
  std::vector<Status> out;
  for (Device d : devices()) {
    Status s;
    char name[96] = "";
    unsigned value = 0;
    Utilization use{};
    MemoryInfo memory{};
    s.index = static_cast<int>(out.size()), s.health = "OK", s.driver = nvml_driver_version();
    if (nvml().name(d, name, sizeof name) == 0) s.name = name;
    if (nvml().power && nvml().power(d, &value) == 0) s.power_w = value / 1000.0;
    if (nvml().temperature && nvml().temperature(d, 0, &value) == 0) s.temperature_c = value;
    if (nvml().utilization && nvml().utilization(d, &use) == 0) s.utilisation = use.gpu;
    if (nvml().memory && nvml().memory(d, &memory) == 0)
      s.memory_total = static_cast<int64_t>(memory.total), s.memory_used = static_cast<int64_t>(memory.used);
    out.push_back(std::move(s));
  }
  return out;
}

Topology nvml_topology() {
  Topology t;
  const std::vector<Device> all = devices();
  std::vector<std::string> buses;
  for (size_t i = 0; i < all.size(); ++i) {
    PciInfo info{};
    buses.push_back(nvml().pci && nvml().pci(all[i], &info) == 0 ? info.bus_id : str("?", i));
    t.names.push_back(str("GPU", i));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    t.link.emplace_back();
    for (size_t j = 0; j < all.size(); ++j) {
      const int count = i == j ? 0 : links(all[i], buses[j], buses);
      t.link[i].push_back(i == j ? "X" : count > 0 ? str("NV", count) : path_between(all[i], all[j]));
    }
    t.cpu_affinity.push_back(cores_near(all[i]));
  }
  t.legend = {{"NV#", "that many NVLinks"},        {"PIX", "one PCIe bridge"},     {"PXB", "several PCIe bridges"},
              {"PHB", "a CPU's PCIe host bridge"}, {"NODE", "within a NUMA node"}, {"SYS", "between NUMA nodes"}};
  return t;
}

}  // namespace apus::cuda
