// SPDX-License-Identifier: Apache-2.0
// A model over several devices: the sizes of its parts, the memory of the devices, and the places that follow
// (parallel/placement/placement.h decides).
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <string>
#include <vector>

#include "device/device.h"
#include "models/model.h"
#include "parallel/placement/placement.h"

namespace apus {

struct SpreadWish {
  DeviceMap map;
  std::map<std::string, int64_t> limits;  // --max_memory; not empty: no other devices are used
  std::string device = "auto";            // --device: which kind
  at::ScalarType dtype = at::kFloat;      // of weights and cache
  double share = 0.9;                     // of each device's memory
  int64_t context = 0;                    // tokens the cache should hold; 0: there is no cache
  int64_t cache_bytes = 0;                // above 0: as large as that in any case
  int64_t adapter_bytes = 0;              // of adapters that will be loaded beside the weights
  std::string share_flag;                 // which flag sets `share`, if one does
};

struct Spread {
  PlacementRequest ask;
  Placement placement;
  std::vector<DeviceChoice> devices;  // of ask.rooms; opened where something lies

  const DeviceChoice& home() const;  // the embedding's device
  bool several() const { return placement.used().size() > 1; }
  PartDevices part_devices(const Model& model) const;
  // Bytes that the cache may take, by device, where --max_memory says so.
  std::map<std::string, int64_t> cache_limits() const;
  // A line for each device: modules, weights, cache for so many tokens, what is free now.
  std::string table(int64_t cache_tokens) const;
};

// The model is described, not loaded; when it goes on several devices, it is told so (Model::spread).
Spread spread_model(Model& model, const SpreadWish& wish);

}  // namespace apus
