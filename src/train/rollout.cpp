// SPDX-License-Identifier: Apache-2.0
#include "train/rollout.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "device/agree.h"
#include "engine/engine.h"
#include "engine/follower.h"

namespace apus {

Rollout::Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec, RolloutServers::Save save,
                 std::shared_ptr<StepLine> line)
    : policy_(policy), options_(options), spec_(std::move(spec)), save_(std::move(save)), line_(std::move(line)) {}

Rollout::~Rollout() = default;

// With space to spare, so that prompts that grow a little do not make one engine after the other.
int64_t Rollout::room(int64_t tokens) const {
  const int64_t longest = policy_.shape().max_positions, wanted = std::min(longest, tokens);
  return (engine_ || follower_) && spec_.max_model_len >= wanted
             ? spec_.max_model_len
             : std::min(longest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted))));
}

Engine& Rollout::awake(int64_t tokens) {
  const int64_t room = this->room(tokens);
  if (engine_ && spec_.max_model_len == room) {
    engine_->wake();
  } else {
    engine_.reset();  // gives its cache back before a larger one is made
    spec_.max_model_len = room;
    ModelHooks hooks;
    hooks.line = line_;
    engine_ = std::make_unique<Engine>(policy_, options_, spec_, std::move(hooks));
  }
  if (version_of_cache_ != version_) engine_->weights_changed();
  version_of_cache_ = version_;
  return *engine_;
}

void Rollout::follow(int64_t tokens) {
  const int64_t room = this->room(tokens);
  if (!follower_ || spec_.max_model_len != room) {
    follower_.reset();
    spec_.max_model_len = room;
    ModelHooks hooks;
    hooks.line = line_;
    follower_ = std::make_unique<Follower>(policy_, options_, spec_, std::move(hooks));
  }
  follower_->until_rest();
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
  if (line_ && engine_) engine_->rest();
}

// At the end of a shift that ranks had together, its caches are given back by all.
Rollout::Shift::~Shift() {
  rollout_.under_way_.reset();
  if (--rollout_.shifts_ == 0 && !rollout_.line_) rollout_.rest();
}

int64_t Rollout::longest() const { return policy_.shape().max_positions; }

std::vector<FinishedAnswer> Rollout::answers(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling,
                                             const std::vector<std::vector<MediaItem>>& media, const StopWords* stop,
                                             const std::vector<uint64_t>& seeds, const AnswerEnded& ended) {
  const bool alone = servers_ || !line_;
  if (prompts.empty() && alone) return {};
  const bool seen = std::any_of(media.begin(), media.end(), [](const auto& of_prompt) { return !of_prompt.empty(); });
  require(!servers_ || !seen, Fault::Usage,
          "rollout servers answer questions of text alone, and one has images, videos or sounds: leave "
          "--vllm_server_host away, so that the engine in this process answers");
  require(alone || !seen, Fault::Usage,
          "processes that share out the model (--tensor_model_parallel_size, --expert_model_parallel_size) tell each "
          "other the tokens of questions, and one has images, videos or sounds: use --deepspeed zero3 instead");
  std::vector<EngineRequest> requests = requests_of(prompts, sampling);
  for (size_t i = 0; i < seeds.size(); ++i) requests.at(i).sampling.seed = seeds[i];
  for (EngineRequest& request : requests) request.tells_experts = tells_experts_;
  Answers out;
  if (alone && !servers_) {
    for (size_t i = 0; seen && i < requests.size(); ++i) requests[i].media = media.at(i);
    out = by_engine(std::move(requests), stop, ended);
  } else {
    AnswerOrder order{.prompts = prompts,
                      .sampling = sampling,
                      .version = held_ ? version_of_servers_ : version_ + 1,
                      .tells_experts = tells_experts_};
    for (const EngineRequest& request : requests) order.seeds.push_back(request.sampling.seed);
    if (servers_) return by_servers(order, stop);
    out = *together(order, stop);
  }
  for (FinishedAnswer& answer : out)
    for (TokenOut& token : answer.tokens) token.weights = version_;
  return out;
}

void Rollout::begin(std::vector<EngineRequest> requests, const AnswerEnded& ended) {
  int64_t tokens = 1;
  for (EngineRequest& r : requests) {
    tokens = std::max(tokens, std::ssize(r.prompt) + r.sampling.max_new_tokens);
    r.tells_experts = tells_experts_;
  }
  if (under_way_ && room(tokens) != spec_.max_model_len) {
    under_way_->wait();
    under_way_.reset();
  }
  if (!under_way_) under_way_ = std::make_unique<AnswersUnderWay>(awake(tokens));
  under_way_->ask(std::move(requests), [ended, version = version_](size_t i, const FinishedAnswer& answer) {
    FinishedAnswer of_version = answer;
    for (TokenOut& token : of_version.tokens) token.weights = version;
    ended(i, of_version);
  });
}

Rollout::Answers Rollout::by_servers(AnswerOrder order, const StopWords* stop) {
  Answers out = servers_->answers(order);
  if (stop)
    for (FinishedAnswer& answer : out) end_at_word(answer, *stop);
  return out;
}

Rollout::Answers Rollout::by_engine(std::vector<EngineRequest> requests, const StopWords* stop,
                                    const AnswerEnded& ended) {
  int64_t tokens = 1;
  for (const EngineRequest& r : requests) tokens = std::max(tokens, std::ssize(r.prompt) + r.sampling.max_new_tokens);
  Engine& engine = awake(tokens);
  Answers out;
  try {
    out = generate(engine, std::move(requests), stop, ended);
  } catch (...) {
    if (!line_) rest();  // else the others learn of it as of any rank's failure
    throw;
  }
  rest();
  return out;
}

std::optional<Rollout::Answers> Rollout::together(const std::optional<AnswerOrder>& mine, const StopWords* stop) {
  Comm& ranks = line_->ranks();
  std::vector<EngineRequest> requests;
  std::vector<size_t> first;  // of each rank, and behind the last
  bool done = true;
  int64_t tokens = 1;
  for (const std::string& text : gather_text(mine ? json_text(to_wire(*mine)) : "", ranks)) {
    first.push_back(requests.size());
    if (text.empty()) continue;
    done = false;
    const AnswerOrder order = order_of_wire(parse_json(text, "questions of another process", Fault::Comm));
    std::vector<EngineRequest> asked = requests_of(order.prompts, order.sampling);
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].sampling.seed = order.seeds[i], asked[i].tells_experts = order.tells_experts;
      tokens = std::max(tokens, std::ssize(asked[i].prompt) + asked[i].sampling.max_new_tokens);
      requests.push_back(std::move(asked[i]));
    }
  }
  first.push_back(requests.size());
  if (done) return std::nullopt;
  if (requests.empty()) return Answers();
  std::string said;
  if (line_->leads())
    said = json_text(to_wire(by_engine(std::move(requests), stop)));
  else
    follow(tokens);
  Answers all = answers_of_wire(parse_json(gather_text(said, ranks)[0], "answers of another process", Fault::Comm));
  const auto rank = static_cast<size_t>(ranks.rank());
  require(all.size() == first.back(), Fault::Comm, all.size(), " answers came to ", first.back(), " questions");
  Answers own(std::make_move_iterator(all.begin() + static_cast<long>(first[rank])),
              std::make_move_iterator(all.begin() + static_cast<long>(first[rank + 1])));
  if (stop)
    for (FinishedAnswer& answer : own) end_at_word(answer, *stop);
  return own;
}

void Rollout::serve() {
  if (!line_ || servers_) return;
  while (together(std::nullopt, nullptr)) continue;
  if (engine_) {
    engine_->wake();
    rest();
  } else if (follower_) {
    follower_->until_rest();
  }
}

}  // namespace apus
