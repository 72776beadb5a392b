// SPDX-License-Identifier: Apache-2.0
// Rotary position tables: plain, linear, dynamic, llama3, yarn, longrope; one position per token, or three (m-rope).
// Computed on the host, since tables made on a device differ from device to device.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/step.h"

namespace apus {

struct RopeSpec {
  std::string type = "default";  // default, linear, dynamic, llama3, yarn, longrope
  int64_t dim = 0;               // elements of a head that turn (2R)
  double theta = 10000, factor = 1;
  double original_positions = 0;                     // context before scaling
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double attention_factor = 0;                       // yarn, longrope; 0: from the factor
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;
  // Longrope: of each frequency, within and beyond the original context.
  std::vector<double> short_factor, long_factor;
  // m-rope: how many of the R frequencies follow time, height, width.
  std::vector<int64_t> sections;
  // Frequencies take turns t, h, w, t, h, w instead of three runs.
  bool interleaved_sections = false;
};

struct RopeFrequencies {
  // R values, rounded to f32 as the original implementations hold them.
  std::vector<float> inverse;
  double scale = 1;  // cos and sin are multiplied by it (yarn, longrope)
};

// length: of the text, for those that follow it; the others ignore it.
RopeFrequencies rope_frequencies(const RopeSpec& spec, int64_t length);
bool follows_length(const RopeSpec& spec);  // dynamic, longrope: beyond the original context

// Fills step.cos and step.sin [T, R] f32 from step.position, on the position's device.
void fill_rope(const RopeSpec& spec, Step& step);

}  // namespace apus
