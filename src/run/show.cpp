// SPDX-License-Identifier: Apache-2.0
// The weights of `apus show`: mapped, not read, and held against the model that config.json describes.
#include "cli/show.h"

#include <cstdio>

#include "base/clock.h"
#include "checkpoint/quantised_weights.h"
#include "checkpoint/weights.h"
#include "models/model.h"
#include "models/spec/score_head.h"
#include "run/runner.h"

namespace apus {
namespace {

int run_show(const ShowOptions& o) {
  const Json config = read_model_config(o.folder);
  const auto model = make_model(config, score_head_of(config) ? Head::Scalar : Head::Vocab);
  const TensorFolder source(o.folder);
  const auto quantised = held_weights(config, {}, o.folder);
  const UnreadTensors unread = load_weights(
      *model, source,
      {.dtype = choose_dtype("", config, at::kCPU, nullptr), .quantised = quantised.get(), .answers_only = true});
  std::string rest;
  if (!unread.ahead.empty()) rest += str("; not read: ", unread.ahead.size(), " of layers that guess tokens ahead");
  if (!unread.speech.empty()) rest += str("; not read: ", unread.speech.size(), " that make speech");
  std::printf("%-14s %zu tensors, %s; each has its place%s\n", "weights", source.names().size(),
              bytes_text(source.bytes()).c_str(), rest.c_str());
  return 0;
}

const RegisterRunner<ShowOptions> show("show", run_show);
}  // namespace
}  // namespace apus
