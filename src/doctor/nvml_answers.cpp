// SPDX-License-Identifier: Apache-2.0
#include "doctor/nvml_answers.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "devices/cuda/nvml.h"
#include "doctor/isolated.h"

namespace apus {

namespace {
constexpr double kLimit = 20;  // seconds

Json answer(const std::function<Json()>& ask) {
  const Isolated asked = run_isolated([&] { return json_text(ask()); }, kLimit);
  return asked.end == Isolated::End::Done ? parse_json(asked.text, "the GPUs' library", Fault::Bug) : Json::array();
}
}  // namespace

std::vector<Status> nvml_devices() {
  const Json rows = answer([] {
    Json all = Json::array();
    for (const Status& s : cuda::nvml_status())
      all.push_back(
          {s.name, s.health, s.power_w, s.temperature_c, s.utilisation, s.memory_total, s.memory_used, s.driver});
    return all;
  });
  std::vector<Status> devices;
  for (const Json& row : rows) {
    Status& s = devices.emplace_back();
    s.index = static_cast<int>(devices.size()) - 1;
    s.name = row.at(0), s.health = row.at(1), s.power_w = row.at(2), s.temperature_c = row.at(3);
    s.utilisation = row.at(4), s.memory_total = row.at(5), s.memory_used = row.at(6), s.driver = row.at(7);
  }
  return devices;
}

Topology nvml_links() {
  const Json rows = answer([] {
    const Topology t = cuda::nvml_topology();
    return Json::array({t.names, t.link, t.cpu_affinity, t.legend});
  });
  Topology t;
  if (rows.size() == 4) t = {rows.at(0), rows.at(1), rows.at(2), rows.at(3)};
  return t;
}

}  // namespace apus
