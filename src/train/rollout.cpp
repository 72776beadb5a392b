// SPDX-License-Identifier: Apache-2.0
#include "train/rollout.h"

#include <algorithm>
#include <bit>

#include "engine/engine.h"

namespace apus {

Rollout::Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec, RolloutServers::Save save)
    : policy_(policy), options_(options), spec_(std::move(spec)), save_(std::move(save)) {}

Rollout::~Rollout() = default;

Engine& Rollout::awake(int64_t tokens) {
  const int64_t longest = policy_.shape().max_positions, wanted = std::min(longest, tokens);
  if (engine_ && spec_.max_model_len >= wanted) {
    engine_->wake();
  } else {
    engine_.reset();  // gives its cache back before a larger one is made
    // With room to spare, so that prompts that grow a little do not make one engine after the other.
    spec_.max_model_len = std::min(longest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted))));
    engine_ = std::make_unique<Engine>(policy_, options_, spec_);
  }
  if (version_of_cache_ != version_) engine_->weights_changed();
  version_of_cache_ = version_;
  return *engine_;
}

void Rollout::ask_servers(const RolloutServerOptions& servers, bool sends) {
  if (servers.server_urls().empty()) return;
  require(save_ != nullptr, Fault::Bug, "nobody writes weights for rollout servers");
  if (!servers_)
    servers_ = std::make_unique<RolloutServers>(servers.server_urls(), servers.vllm_server_timeout, sends, save_);
  // Here, where all ranks are: they may have to write the weights together, and a rank without questions asks nothing.
  version_of_servers_ = version_ + 1;  // 0 is that of a server that has been sent nothing
  servers_->answers({.prompts = {}, .seeds = {}, .sampling = {}, .version = version_of_servers_});
}

void Rollout::rest() {
  if (shifts_ == 0 && engine_) engine_->sleep();
}

Rollout::Shift::~Shift() {
  if (--rollout_.shifts_ == 0) rollout_.rest();
}

int64_t Rollout::longest() const { return policy_.shape().max_positions; }

std::vector<FinishedAnswer> Rollout::answers(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling,
                                             const std::vector<std::vector<MediaItem>>& media, const StopWords* stop,
                                             const std::vector<uint64_t>& seeds) {
  if (prompts.empty()) return {};
  const bool seen = std::any_of(media.begin(), media.end(), [](const auto& of_prompt) { return !of_prompt.empty(); });
  require(!servers_ || !seen, Fault::Usage,
          "rollout servers answer questions of text alone, and one has images, videos or sounds: leave "
          "--vllm_server_host away, so that the engine in this process answers");
  if (servers_) {
    AnswerOrder order{.prompts = prompts, .sampling = sampling, .version = held_ ? version_of_servers_ : version_ + 1};
    for (size_t i = 0; i < prompts.size(); ++i) order.seeds.push_back(seeds.empty() ? sampling.seed + i : seeds.at(i));
    std::vector<FinishedAnswer> answers = servers_->answers(order);
    if (stop)
      for (FinishedAnswer& answer : answers) end_at_word(answer, *stop);
    return answers;
  }
  size_t longest = 1;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  Engine& engine = awake(static_cast<int64_t>(longest) + sampling.max_new_tokens);
  std::vector<FinishedAnswer> answers;
  try {
    std::vector<EngineRequest> requests = requests_of(prompts, sampling);
    if (seen)
      for (size_t i = 0; i < requests.size(); ++i) requests[i].media = media.at(i);
    for (size_t i = 0; i < seeds.size(); ++i) requests.at(i).sampling.seed = seeds[i];
    answers = generate(engine, std::move(requests), stop);
  } catch (...) {
    rest();
    throw;
  }
  rest();
  for (FinishedAnswer& answer : answers)
    for (TokenOut& token : answer.tokens) token.weights = version_;
  return answers;
}

}  // namespace apus
