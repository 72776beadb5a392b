// SPDX-License-Identifier: Apache-2.0
#include "plan/device_facts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/assets.h"
#include "base/error.h"
#include "base/json.h"
#include "base/nearest.h"
#include "devices/cpu/host.h"

namespace apus {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

const Json& device_data() {
  static const Json all = parse_json(asset("knowledge/devices.json"), "assets/knowledge/devices.json", Fault::Bug);
  return all;
}

std::string plain(std::string name) {  // "A100-80G" and "a100_80g" are one
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

DeviceFacts from_json(const Json& j) {
  const auto number = [&](const char* key) { return j.value(key, 0.0); };
  DeviceFacts d;
  d.name = j.at("name").get<std::string>(), d.aliases = j.value("aliases", std::vector<std::string>());
  d.memory = number("memory_gib") * kGib, d.reserved = number("reserved_gib") * kGib;
  d.context = number("context_gib") * kGib, d.comm = number("comm_gib") * kGib;
  d.bf16 = number("bf16_tflops") * 1e12, d.f32 = number("f32_tflops") * 1e12;
  d.memory_speed = number("memory_gbs") * 1e9, d.link = number("link_gbs") * 1e9,
  d.network = number("network_gbs") * 1e9;
  d.node = j.at("node").get<int>(), d.efficiency = number("efficiency");
  d.half_tokens = device_data().at("half_tokens").get<double>(), d.measured = j.value("measured", "");
  return d;
}

DeviceFacts processor() {
  const Json& j = device_data().at("processor");
  const auto number = [&](const char* key) { return j.at(key).get<double>(); };
  DeviceFacts d;
  d.name = "cpu", d.host = true;
  d.memory = static_cast<double>(cpu::memory_total());
  d.context = number("context_gib") * kGib, d.comm = number("comm_gib") * kGib;
  const double cores = cpu::usable_cores();
  d.bf16 = number("bf16_gflops_core") * cores * 1e9, d.f32 = number("f32_gflops_core") * cores * 1e9;
  d.memory_speed = number("memory_gbs") * 1e9, d.link = number("link_gbs") * 1e9,
  d.network = number("network_gbs") * 1e9;
  d.efficiency = number("efficiency"), d.half_tokens = number("half_tokens");
  d.measured = j.at("measured").get<std::string>();
  return d;
}

std::vector<DeviceFacts> table() {
  std::vector<DeviceFacts> all;
  for (const Json& j : device_data().at("devices")) all.push_back(from_json(j));
  return all;
}

// "NVIDIA GeForce RTX 4090" -> "rtx4090", "Ascend910B3" -> "910b3"
std::string without_maker(std::string name) {
  name = plain(name);
  for (const char* word : {"nvidia", "amd", "apple", "intel", "google", "geforce", "tesla", "ascend", "instinct"})
    if (name.starts_with(word)) name.erase(0, std::string(word).size());
  return name;
}

// The device that goes by this name, or by one that begins so ("A100-SXM4-40GB"); of several memories the nearest.
std::optional<DeviceFacts> by_name(const std::string& name, double memory) {
  const std::string wanted = without_maker(name);
  std::optional<DeviceFacts> best;
  for (const DeviceFacts& d : table()) {
    std::vector<std::string> names = d.aliases;
    names.push_back(d.name);
    for (const std::string& each : names)
      if (plain(each) == wanted) return d;
    const std::string stem = plain(d.name.substr(0, d.name.find('-')));
    const bool begins = wanted.starts_with(stem) && !std::isdigit(static_cast<unsigned char>(wanted[stem.size()]));
    if (begins && (!best || std::abs(d.memory - memory) < std::abs(best->memory - memory))) best = d;
  }
  return best;
}

// A device of this machine, or what stands for one where there is none of its kind.
DeviceFacts of_kind(const std::string& kind, const std::vector<DeviceGroup>& here) {
  const std::string usual = kind == "cuda" ? "A100-80G" : "910B3";
  for (const DeviceGroup& group : here) {
    if (group.devices.empty() || (group.kind != kind && kind != "auto")) continue;
    if (group.kind == "cpu") return processor();
    const Status& s = group.devices.front();
    const auto known = by_name(s.name, static_cast<double>(s.memory_total));
    DeviceFacts d = known ? *known : *by_name(group.kind == "cuda" ? "A100-80G" : "910B3", 0);
    if (!known) d.assumed = str("the figures of ", s.name, " are not known: its speed is that of ", d.name);
    d.name = s.name;
    if (s.memory_total > 0) d.memory = static_cast<double>(s.memory_total);
    return d;
  }
  if (kind == "auto") return processor();
  DeviceFacts d = *by_name(usual, 0);
  d.assumed = str("no ", kind, " device is found here: this is for ", d.name);
  return d;
}

}  // namespace

DeviceFacts device_facts(const std::string& name, const std::vector<DeviceGroup>& here) {
  const std::string kind = plain(name.substr(0, name.find(':')));
  if (kind == "cpu") return processor();
  if (kind == "auto" || kind == "this" || kind.empty()) return of_kind("auto", here);
  if (kind == "npu" || kind == "cuda") return of_kind(kind, here);
  if (const auto known = by_name(name.substr(0, name.find(':')), 80 * kGib)) return *known;
  for (const Json& other : device_data().at("not_supported"))
    for (const std::string each : other.at("names"))
      require(without_maker(each) != without_maker(name.substr(0, name.find(':'))), Fault::Usage, "--device ", name,
              ": ", other.at("why").get<std::string>(), "; it runs on processors, GPUs of NVIDIA and NPUs of Ascend");
  std::vector<std::string> known;
  for (const DeviceFacts& d : table()) {
    known.insert(known.end(), d.aliases.begin(), d.aliases.end());
    known.push_back(d.name);
  }
  known.insert(known.end(), {"cpu", "npu", "cuda"});
  const auto near = nearest(name, known);
  fail(Fault::Usage, "--device ", name, " is not among the devices whose figures are known",
       near.empty() ? "" : "; nearest: " + join(near), "; all: ", join(device_names()));
}

DeviceFacts device_facts(const std::string& name) {
  const std::string kind = plain(name.substr(0, name.find(':')));
  const bool asks = kind == "auto" || kind == "this" || kind == "npu" || kind == "cuda" || kind.empty();
  return device_facts(name, asks ? inventory(this_machine()) : std::vector<DeviceGroup>());
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Json& j : device_data().at("devices")) names.push_back(j.at("name").get<std::string>());
  names.push_back("cpu");
  return names;
}

std::string device_data_date() { return device_data().at("as_of").get<std::string>(); }

}  // namespace apus
