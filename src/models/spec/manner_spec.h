// SPDX-License-Identifier: Apache-2.0
// How a voice speaks, found in the mel of a sample (ECAPA-TDNN), as data: convolutions over time,
// and one row of them all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/seeing_spec.h"

namespace apus {

struct MannerSpec {
  std::string name;
  std::vector<int64_t> dilations;  // of the first convolution and of the blocks behind it
  // Into so many parts a block's channels are divided, each but the first convolved with the one before it.
  int64_t divided = 2;
  int64_t found = 128;  // the width of what is found
  std::vector<TowerPart> parts;
};

// What config.json leaves out.
struct MannerDefaults {
  std::vector<int64_t> channels;
  int64_t divided = 2, found = 128, squeezed = 64, asking = 64;
};

class Config;
// `bands`: of mel.
MannerSpec read_manner(const Config& config, const std::string& name, int64_t bands, const MannerDefaults& unsaid);

}  // namespace apus
