// SPDX-License-Identifier: Apache-2.0
#include "doctor/inventory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "devices/cpu/host.h"
#include "doctor/nvml_answers.h"
#include "doctor/smi.h"

namespace apus {

namespace {
bool numbered(const std::string& name, const std::string& stem) {
  return name.size() > stem.size() && name.starts_with(stem) &&
         name.find_first_not_of("0123456789", stem.size()) == std::string::npos;
}

int count_numbered(const Host& host, const char* folder, const std::string& stem) {
  const auto names = host.names_in(folder);
  return static_cast<int>(
      std::count_if(names.begin(), names.end(), [&](const auto& name) { return numbered(name, stem); }));
}

// The tool's answer, or why there is none.
std::string answer(const Host& host, const std::string& tool, const std::vector<std::string>& arguments,
                   std::string& note) {
  const auto ran = host.run(tool, arguments);
  if (!ran) {
    note = str(tool, " is not on PATH nor in its usual places");
    return "";
  }
  if (ran->code == 124)
    note = str(tool, " did not answer in time: the driver hangs; look at dmesg");
  else if (ran->code != 0)
    note = str(tool, " failed (", ran->code, "): ", ran->output.substr(0, ran->output.find('\n')).substr(0, 200));
  return ran->code == 0 ? ran->output : "";
}

DeviceGroup npus(const Host& host) {
  DeviceGroup group{"npu", "npu-smi info", {}, ""};
  group.devices = parse_npu_smi(answer(host, "npu-smi", {"info"}, group.note));
  if (group.devices.empty() && group.note.empty()) group.note = "npu-smi lists no device";
  return group;
}

// "cuda:0 is divided (MIG): 3g.20gb, 1g.5gb"; a process sees one part, not the device.
std::string divided(const Host& host) {
  std::map<int, std::vector<std::string>> parts;
  std::string unused;
  for (auto& [device, part] : parse_mig_list(answer(host, "nvidia-smi", {"-L"}, unused)))
    parts[device].push_back(std::move(part));
  std::string text;
  for (const auto& [device, names] : parts)
    text += str(text.empty() ? "" : "; ", "cuda:", device, " is divided (MIG): ", join(names));
  return text;
}

DeviceGroup gpus(const Host& host) {
  DeviceGroup group{"cuda", "nvidia-smi", {}, ""};
  const std::vector<std::string> query{str("--query-gpu=", kNvidiaQuery), "--format=csv,noheader,nounits"};
  group.devices = parse_nvidia_csv(answer(host, "nvidia-smi", query, group.note));
  // A driver that knows other questions.
  if (group.devices.empty() && group.note.find("in time") == std::string::npos) {
    std::string note;
    group.devices = parse_nvidia_table(answer(host, "nvidia-smi", {}, note));
    if (!group.devices.empty()) group.note.clear();
  }
  if (group.devices.empty() && group.note.empty()) group.note = "nvidia-smi lists no device";
  if (!group.devices.empty()) {
    group.note = divided(host);
  } else if (host.root == "/") {
    group.devices = nvml_devices();
    if (!group.devices.empty()) group.source = "NVML", group.note.clear();
  }
  return group;
}

DeviceGroup processor(const Host& host) {
  DeviceGroup group{"cpu", "/proc and /sys", {}, ""};
  Status s;
  s.name = cpu::processor_name(), s.health = "OK";
  s.memory_total = host.memory_total, s.memory_used = host.memory_total - host.memory_free;
  const double load = std::atof(host.first_line("/proc/loadavg").c_str());
  s.utilisation = std::min(100.0, 100 * load / std::max(1, host.usable_cores));
  group.devices.push_back(s);
  std::set<std::string> sockets;
  for (const auto& name : host.names_in("/sys/devices/system/cpu"))
    if (numbered(name, "cpu"))
      sockets.insert(host.first_line("/sys/devices/system/cpu/" + name + "/topology/physical_package_id"));
  sockets.erase("");
  group.note = str(std::max<size_t>(1, sockets.size()), sockets.size() > 1 ? " sockets, " : " socket, ",
                   std::max(1, count_numbered(host, "/sys/devices/system/node", "node")), " NUMA node(s), ",
                   host.usable_cores, " usable cores");
  return group;
}

bool has_npus(const Host& host) { return npu_nodes(host) > 0 || !host.find_program("npu-smi").empty(); }
bool has_gpus(const Host& host) { return nvidia_nodes(host) > 0 || !host.find_program("nvidia-smi").empty(); }

Json known(double value) { return value < 0 ? Json(nullptr) : Json(value); }
Json known(int64_t value) { return value < 0 ? Json(nullptr) : Json(value); }
}  // namespace

std::string visibility_variable(const std::string& kind) {
  return kind == "npu" ? "ASCEND_RT_VISIBLE_DEVICES" : kind == "cuda" ? "CUDA_VISIBLE_DEVICES" : "";
}

int npu_nodes(const Host& host) { return count_numbered(host, "/dev", "davinci"); }
int nvidia_nodes(const Host& host) { return count_numbered(host, "/dev", "nvidia"); }

int pci_devices(const Host& host, const std::string& vendor, const std::string& class_prefix) {
  int count = 0;
  for (const auto& name : host.names_in("/sys/bus/pci/devices")) {
    const Host::Path folder = Host::Path("/sys/bus/pci/devices") / name;
    count +=
        host.first_line(folder / "vendor") == vendor && host.first_line(folder / "class").starts_with(class_prefix);
  }
  return count;
}

std::vector<DeviceGroup> inventory(const Host& host) {
  std::vector<DeviceGroup> groups;
  if (has_npus(host)) groups.push_back(npus(host));
  if (has_gpus(host)) groups.push_back(gpus(host));
  groups.push_back(processor(host));
  return groups;
}

std::vector<LinkGroup> links(const Host& host) {
  std::vector<LinkGroup> groups;
  if (has_npus(host)) {
    LinkGroup& g = groups.emplace_back(LinkGroup{"npu", "npu-smi info -t topo", {}, ""});
    g.topology = parse_topology(answer(host, "npu-smi", {"info", "-t", "topo"}, g.note));
  }
  if (has_gpus(host)) {
    LinkGroup& g = groups.emplace_back(LinkGroup{"cuda", "nvidia-smi topo -m", {}, ""});
    g.topology = parse_topology(answer(host, "nvidia-smi", {"topo", "-m"}, g.note));
    if (g.topology.names.empty() && host.root == "/") {
      g.topology = nvml_links();
      if (!g.topology.names.empty()) g.source = "NVML", g.note.clear();
    }
  }
  groups.push_back({"cpu", "/sys/devices/system/node", cpu::numa_topology(), processor(host).note});
  return groups;
}

Json to_json(const std::vector<DeviceGroup>& groups) {
  Json all = Json::array();
  for (const auto& group : groups) {
    Json devices = Json::array();
    for (const Status& s : group.devices) {
      devices.push_back({{"index", s.index},
                         {"name", s.name},
                         {"health", s.health},
                         {"power_w", known(s.power_w)},
                         {"temperature_c", known(s.temperature_c)},
                         {"utilisation_percent", known(s.utilisation)},
                         {"memory_total", known(s.memory_total)},
                         {"memory_used", known(s.memory_used)},
                         {"driver", s.driver}});
    }
    all.push_back({{"kind", group.kind}, {"source", group.source}, {"devices", devices}, {"note", group.note}});
  }
  return {{"groups", all}};
}

Json to_json(const std::vector<LinkGroup>& groups) {
  Json all = Json::array();
  for (const auto& group : groups) {
    const Topology& t = group.topology;
    Json legend = Json::object();
    for (const auto& [word, meaning] : t.legend) legend[word] = meaning;
    all.push_back({{"kind", group.kind},
                   {"source", group.source},
                   {"names", t.names},
                   {"link", t.link},
                   {"cpu_affinity", t.cpu_affinity},
                   {"legend", legend},
                   {"note", group.note}});
  }
  return {{"groups", all}};
}

}  // namespace apus
