// SPDX-License-Identifier: Apache-2.0
// Published figures of devices, from assets/knowledge/devices.json.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "doctor/inventory.h"

namespace apus {

struct DeviceFacts {
  std::string name;
  std::vector<std::string> aliases;
  bool host = false;  // a processor
  // Bytes of memory: in all; in use while nothing runs; taken by a process before its first tensor.
  double memory = 0, reserved = 0, context = 0;
  double comm = 0;           // bytes of one communicator's buffers
  double bf16 = 0, f32 = 0;  // FLOP/s at the peak
  // Bytes a second: from its own memory; to another device of the node; to another node.
  double memory_speed = 0, link = 0, network = 0;
  int node = 1;             // devices that `link` joins
  double efficiency = 0.5;  // share of the peak that training's products reach, with thousands of tokens at a time
  double half_tokens = 0;   // with so many at a time they reach half of it
  std::string measured;     // what was seen on such a device; empty: nothing, all is published
  // In words, what was assumed where the figures are those of another device; may be empty.
  std::string assumed;
  // The share with so many tokens in a micro-batch, in terms of `efficiency`, which is of 2048.
  double share_of_peak(double tokens) const {
    const double full = 2048 / (2048 + half_tokens);
    return efficiency * std::min(1.0, tokens / (tokens + half_tokens) / full);
  }
  double flops(double element_size) const { return element_size > 2 ? f32 : bf16; }
};

// "910B3", "a100-80g", "4090", "NVIDIA H200", ...; "auto" and "this": what this machine computes with; "npu", "cuda"
// (an index is ignored): its devices of that kind; "cpu": its processor and memory. Fault::Usage naming the nearest.
DeviceFacts device_facts(const std::string& name);
DeviceFacts device_facts(const std::string& name, const std::vector<DeviceGroup>& here);  // of another machine
std::vector<std::string> device_names();
std::string device_data_date();

}  // namespace apus
