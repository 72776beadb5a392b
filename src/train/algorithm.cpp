// SPDX-License-Identifier: Apache-2.0
#include "train/algorithm.h"

namespace apus {

std::vector<Update> Algorithm::collect(Actors&, std::vector<Samples> micro_batches) {
  Update update;
  for (const Samples& samples : micro_batches) update.push_back(collate(samples));
  return {std::move(update)};
}

std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmOptions& options) {
  const MakeAlgorithm* make = Registry<MakeAlgorithm>::of().find(name);
  require(make, Fault::Bug, "the algorithm '", name, "' has options, but no loss is registered under this name");
  return (*make)(options);
}

}  // namespace apus
