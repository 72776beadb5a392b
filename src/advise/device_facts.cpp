// SPDX-License-Identifier: Apache-2.0
#include "advise/device_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "base/error.h"
#include "base/json.h"
#include "base/nearest.h"
#include "devices/cpu/host.h"

namespace apus {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

const Json& data() {
  static const Json all = parse_json(asset("advise/devices.json"), "assets/advise/devices.json", Fault::Bug);
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
  return d;
}

DeviceFacts this_machine() {
  const Json& j = data().at("processor");
  const auto number = [&](const char* key) { return j.at(key).get<double>(); };
  DeviceFacts d;
  d.name = "cpu", d.host = true;
  d.memory = static_cast<double>(cpu::memory_total());
  d.context = number("context_gib") * kGib, d.comm = number("comm_gib") * kGib;
  const double cores = cpu::usable_cores();
  d.bf16 = number("bf16_gflops_core") * cores * 1e9, d.f32 = number("f32_gflops_core") * cores * 1e9;
  d.memory_speed = number("memory_gbs") * 1e9, d.link = number("link_gbs") * 1e9,
  d.network = number("network_gbs") * 1e9;
  d.efficiency = number("efficiency");
  return d;
}

}  // namespace

DeviceFacts device_facts(const std::string& name) {
  const std::string wanted = plain(name.substr(0, name.find(':')));
  if (wanted == "cpu" || wanted == "auto" || wanted == "this" || wanted.empty()) return this_machine();
  std::vector<std::string> known;
  for (const Json& j : data().at("devices")) {
    DeviceFacts d = from_json(j);
    std::vector<std::string> names = d.aliases;
    names.push_back(d.name);
    for (const std::string& each : names)
      if (plain(each) == wanted) return d;
    known.insert(known.end(), names.begin(), names.end());
  }
  known.push_back("cpu");
  const auto near = nearest(name, known);
  fail(Fault::Usage, "--device ", name, " is not among the devices whose figures are known",
       near.empty() ? "" : "; nearest: " + join(near), "; all: ", join(device_names()));
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Json& j : data().at("devices")) names.push_back(j.at("name").get<std::string>());
  names.push_back("cpu");
  return names;
}

std::string device_data_date() { return data().at("as_of").get<std::string>(); }

}  // namespace apus
