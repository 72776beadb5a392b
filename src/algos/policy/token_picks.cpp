// SPDX-License-Identifier: Apache-2.0
#include "algos/policy/token_picks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace apus {
namespace {

// In the floats' order, as whole numbers: a value is found by halving their range, so that ranks exchange one count at
// a time instead of all their values.
uint32_t key_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
float value_of(uint32_t key) { return std::bit_cast<float>(key >> 31 ? key & 0x7fffffffu : ~key); }

struct Values {
  std::vector<float> falling;  // of this rank, -0 as 0
  double count = 0;            // of all ranks
};

Values values_of(const std::vector<at::Tensor>& parts, const RankSum& over_ranks) {
  Values out;
  for (const at::Tensor& part : parts) {
    const at::Tensor host = (part.detach().to(at::kFloat) + 0.0f).to(at::kCPU).contiguous();
    out.falling.insert(out.falling.end(), host.data_ptr<float>(), host.data_ptr<float>() + host.numel());
  }
  std::sort(out.falling.begin(), out.falling.end(), [](float a, float b) { return key_of(a) > key_of(b); });
  out.count = over_ranks(static_cast<double>(out.falling.size()));
  return out;
}

double at_least(const Values& values, uint32_t key, const RankSum& over_ranks) {
  const auto end =
      std::partition_point(values.falling.begin(), values.falling.end(), [key](float x) { return key_of(x) >= key; });
  return over_ranks(static_cast<double>(end - values.falling.begin()));
}

// The largest key that `wanted` of all values reach.
uint32_t threshold_of(const Values& values, double wanted, const RankSum& over_ranks) {
  uint32_t key = 0;
  for (uint32_t bit = 0x80000000u; bit; bit >>= 1)
    if (at_least(values, key | bit, over_ranks) >= wanted) key |= bit;
  return key;
}

TokenPicks reaching(const std::vector<at::Tensor>& parts, float least) {
  TokenPicks out;
  for (const at::Tensor& part : parts) out.push_back(part.detach().to(at::kFloat).ge(least));
  return out;
}

}  // namespace

TokenPicks highest_tokens(const std::vector<at::Tensor>& parts, double share, const RankSum& over_ranks) {
  const Values values = values_of(parts, over_ranks);
  const double finite = over_ranks(static_cast<double>(
      std::count_if(values.falling.begin(), values.falling.end(), [](float x) { return std::isfinite(x); })));
  const double wanted = std::min(std::max(1.0, std::floor(share * values.count)), finite);
  const uint32_t key = threshold_of(values, wanted, over_ranks);
  const bool all = at_least(values, key, over_ranks) == values.count;
  TokenPicks out = reaching(parts, all ? INFINITY : value_of(key));
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i].logical_and(at::isfinite(parts[i].detach()));
  return out;
}

TokenPicks most_uncertain(const std::vector<at::Tensor>& parts, double share, const RankSum& over_ranks) {
  const Values values = values_of(parts, over_ranks);
  const double wanted = values.count - std::ceil((1 - share) * (values.count - 1));
  return reaching(parts, value_of(threshold_of(values, std::max(1.0, wanted), over_ranks)));
}

double mean_of_update(const std::vector<at::Tensor>& parts, const RankSum& over_ranks) {
  double sum = 0, count = 0;
  for (const at::Tensor& part : parts)
    sum += part.detach().to(at::kCPU, at::kDouble).sum().item<double>(), count += static_cast<double>(part.numel());
  count = over_ranks(count);
  return over_ranks(sum) / std::max(1.0, count);
}

}  // namespace apus
