// SPDX-License-Identifier: Apache-2.0
#include "parallel/placement/device_map.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/nearest.h"
#include "base/sizes.h"

namespace apus {

namespace {

constexpr int64_t kLargestFile = 16 << 20;
const std::vector<std::string> kStrategies = {"auto", "balanced", "balanced_low_0", "sequential"};

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "cpu", "npu:3", "1": small letters, and digits behind a colon if there is one.
bool is_device(const std::string& text) {
  if (is_number(text)) return true;
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool word = !kind.empty() && std::all_of(kind.begin(), kind.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return word && (colon == std::string::npos || is_number(text.substr(colon + 1)));
}

Json object_of(const std::string& text, const std::string& flag) {
  Json json;
  try {
    json = parse_json(text, flag, Fault::Usage);
  } catch (const Error&) {
    json = parse_json(repaired_json(text), flag, Fault::Usage);  // Python's spelling: {0: '20GB'}
  }
  require(json.is_object(), Fault::Usage, flag, ": a JSON object is expected");
  return json;
}

std::string device_in(const Json& value, const std::string& module) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.is_number_integer() ? value.dump() : "";
  require(text != "disk", Fault::Usage, "--device_map: '", module,
          "' on disk: give \"cpu\"; weights that stay on the processor are read from the mapped files where their "
          "format allows");
  require(is_device(text), Fault::Usage, "--device_map: '", module, "' is on ", value.dump(),
          ", which is no device; write 0, 1, ..., \"cpu\", or a device's name such as --device takes");
  return text;
}

}  // namespace

DeviceMap parse_device_map(const std::string& text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) return {};
  if (std::find(kStrategies.begin(), kStrategies.end(), text) != kStrategies.end()) return {text, {}};
  std::error_code code;
  const bool object = text[start] == '{';
  if (object || std::filesystem::is_regular_file(text, code)) {
    DeviceMap map{"map", {}};
    const Json json =
        object_of(object ? text : read_file(text, kLargestFile), object ? "--device_map" : "--device_map " + text);
    for (const auto& [module, device] : json.items()) map.entries.emplace_back(module, device_in(device, module));
    require(!map.entries.empty(), Fault::Usage,
            "--device_map is an empty map; {\"\": 0} places everything on device 0");
    return map;
  }
  const auto near = nearest(text, kStrategies, 1);
  const bool one =
      text != "disk" && (is_number(text) || text == "cpu" || (text.find(':') != std::string::npos && is_device(text)));
  require(one, Fault::Usage, "--device_map '", text.substr(0, 80), "' is not known",
          near.empty() ? "" : " (" + near[0] + "?)", "; possible: ", join(kStrategies),
          ", a device (1, cpu), a JSON object of modules and devices, or a file of one");
  return {"map", {{"", text}}};
}

std::map<std::string, int64_t> parse_max_memory(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  std::map<std::string, int64_t> limits;
  const Json json = object_of(text, "--max_memory");
  for (const auto& [device, size] : json.items()) {
    require(is_device(device), Fault::Usage, "--max_memory: '", device,
            "' is no device; write {0: \"20GB\", \"cpu\": \"60GB\"}");
    const std::string written = size.is_string() ? size.get<std::string>() : size.dump();
    const int64_t bytes = written == "0" ? 0 : parse_bytes(written, "--max_memory of " + device);
    limits[device] = bytes;
  }
  require(!limits.empty(), Fault::Usage, "--max_memory names no device");
  return limits;
}

std::string full_device_name(const std::string& written, const std::string& kind) {
  return is_number(written) ? kind + ":" + written : written;
}

}  // namespace apus
