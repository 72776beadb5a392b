// SPDX-License-Identifier: Apache-2.0
#include "models/spec/pooling_kind.h"

#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace {

struct NamedPooling {
  Pooling pooling;
  const char *name, *key;
};
constexpr NamedPooling kKinds[] = {{Pooling::Last, "last", "pooling_mode_lasttoken"},
                                   {Pooling::First, "cls", "pooling_mode_cls_token"},
                                   {Pooling::Max, "max", "pooling_mode_max_tokens"},
                                   {Pooling::Mean, "mean", "pooling_mode_mean_tokens"},
                                   {Pooling::MeanSqrt, "mean_sqrt", "pooling_mode_mean_sqrt_len_tokens"},
                                   {Pooling::WeightedMean, "weighted_mean", "pooling_mode_weightedmean_tokens"}};

const NamedPooling& kind_of(Pooling pooling) {
  for (const NamedPooling& kind : kKinds)
    if (kind.pooling == pooling) return kind;
  fail(Fault::Bug, "a pooling without a name");
}

}  // namespace

std::vector<std::string> pooling_names() {
  std::vector<std::string> names;
  for (const NamedPooling& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

Pooling pooling_named(const std::string& name) {
  for (const NamedPooling& kind : kKinds)
    if (name == kind.name) return kind.pooling;
  fail(Fault::Usage, "--pooling ", name, " is not known; known: ", join(pooling_names()));
}

std::string pooling_name(Pooling pooling) { return kind_of(pooling).name; }
std::string pooling_key(Pooling pooling) { return kind_of(pooling).key; }

std::vector<Pooling> all_poolings() {
  std::vector<Pooling> all;
  for (const NamedPooling& kind : kKinds) all.push_back(kind.pooling);
  return all;
}

}  // namespace apus
