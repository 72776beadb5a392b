// SPDX-License-Identifier: Apache-2.0
// The devices of a machine as its vendors' tools and /sys tell them, without the tensor library.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "device/topology.h"
#include "doctor/host.h"

namespace apus {

struct DeviceGroup {
  std::string kind;    // "npu", "cuda", "cpu": as --device names it
  std::string source;  // where it was read: "npu-smi info", ...
  std::vector<Status> devices;
  std::string note;  // why there are none, or what is unsound; may be empty
};
std::vector<DeviceGroup> inventory(const Host& host);  // kinds that are there, the cpu last

// The environment's variable that lists the devices of a kind a process may see; "" for the cpu.
std::string visibility_variable(const std::string& kind);

struct LinkGroup {
  std::string kind, source;
  Topology topology;
  std::string note;
};
std::vector<LinkGroup> links(const Host& host);

int npu_nodes(const Host& host);                                                                // /dev/davinci0, ...
int nvidia_nodes(const Host& host);                                                             // /dev/nvidia0, ...
int pci_devices(const Host& host, const std::string& vendor, const std::string& class_prefix);  // "0x19e5", "0x12"

Json to_json(const std::vector<DeviceGroup>& groups);
Json to_json(const std::vector<LinkGroup>& groups);

}  // namespace apus
