// SPDX-License-Identifier: Apache-2.0
// --device_map and --max_memory as people write them. No tensor library here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace apus {

struct DeviceMap {
  // auto, balanced, balanced_low_0, sequential: we decide; map: `entries` do; empty: one device, which --device names.
  std::string strategy;
  // A module's name or the beginning of it -> "1", "cpu", "npu:3"
  std::vector<std::pair<std::string, std::string>> entries;
};

// A strategy's name; a device, which then holds everything; a JSON object, or the file of one. Fault::Usage.
DeviceMap parse_device_map(const std::string& text);

// {0: "20GB", "cpu": "60GiB"}: "0" or "npu:0" or "cpu" -> bytes. Only the devices it names are used.
// Empty text: no limits.
std::map<std::string, int64_t> parse_max_memory(const std::string& text);

// "1" is the kind's device 1, anything else is a name already.
std::string full_device_name(const std::string& written, const std::string& kind);

}  // namespace apus
