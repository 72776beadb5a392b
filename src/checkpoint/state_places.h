// SPDX-License-Identifier: Apache-2.0
// Where in its parameter each piece of an optimizer's state lies, where ranks share out the model: a run then goes on
// however the model is shared out next.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

struct StatePlace {
  std::vector<int64_t> full;  // shape of the whole parameter
  std::vector<Range> held;    // what of each dimension
  std::string tied;           // the other name of a parameter that has two; "": it has one
  bool operator==(const StatePlace&) const = default;
};
using StatePlaces = std::map<std::string, StatePlace>;  // by the parameter's name

Json json_of(const StatePlaces& places);
StatePlaces state_places_in(const std::string& json);  // Fault::Data

struct RunState;
// The state of a rank that holds these, put together from all slices of what was saved. Fault::Usage where it cannot
// be: state in blocks, or in fewer dimensions than its parameter, and other pieces.
std::map<std::string, at::Tensor> state_at(const RunState& saved, const StatePlaces& mine);

}  // namespace apus
