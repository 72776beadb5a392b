// SPDX-License-Identifier: Apache-2.0
// How a model turns queries and keys by position, as numbers: plain, linear, dynamic, llama3, yarn, longrope,
// proportional. No tensor
// library here; nn/rope.h makes the tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

struct RopeSpec {
  // default, linear, dynamic, llama3, yarn, longrope, proportional
  std::string type = "default";
  // Elements of a head that turn (2R).
  int64_t dim = 0;
  double theta = 10000, factor = 1;
  // The context before scaling.
  double original_positions = 0;
  // llama3
  double low_freq_factor = 1, high_freq_factor = 4;
  // yarn; whether the borders between its frequencies are whole numbers
  double beta_fast = 32, beta_slow = 1;
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;
  // yarn, longrope; 0: from the factor
  double attention_factor = 0;
  // proportional: the part of the frequencies that turn, the slower ones standing still
  double turning = 1;
  // longrope: of each frequency, within and beyond the original context
  std::vector<double> short_factor = {}, long_factor = {};
  // m-rope: how many of the R frequencies follow time, height, width
  std::vector<int64_t> sections = {};
  // m-rope: frequencies take turns t, h, w, t, h, w instead of three runs
  bool interleaved_sections = false;
  // m-rope: the sections are of height, width and time; the first two take turns, and time has the slowest frequencies.
  bool time_last = false;
  // Of four positions: the sections are of a head's turned numbers, twice as wide, so that of two that turn together
  // one may follow another position than the other.
  bool sections_of_numbers = false;
  // The two numbers that turn together are neighbours instead of lying half the turned part apart.
  bool neighbours = false;
  // By the negative angles.
  bool backwards = false;
  // Above 0: a query at position p is multiplied by 1 + beta * log(1 + floor(p / original_positions)).
  double query_beta = 0;

  bool operator==(const RopeSpec&) const = default;
};

struct RopeFrequencies {
  // R values, rounded to f32 as the original implementations hold them.
  std::vector<float> inverse;
  // cos and sin are multiplied by it (yarn, longrope).
  double scale = 1;
};

// length: of the text, for those that follow it; the others ignore it. Fault::Model for a type that is not known.
RopeFrequencies rope_frequencies(const RopeSpec& spec, int64_t length);
// dynamic, longrope: beyond the original context
bool follows_length(const RopeSpec& spec);
// longrope, whose two sets of factors differ; the same with the set alone that texts of this length have
bool has_two_sets(const RopeSpec& spec);
RopeSpec with_one_set(RopeSpec spec, int64_t length);

}  // namespace apus
