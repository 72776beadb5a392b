// SPDX-License-Identifier: Apache-2.0
// The policy answers prompts while it is trained: an engine over the very weights that are trained, none are copied.
// The engine stays; between two rounds of answers it sleeps, and its cache is given back. Or servers answer, which are
// sent the weights.
//
// Where ranks hold parts of the policy, those of one copy of it answer together: each round is called by all of them,
// each with prompts of its own, or none. The first one's engine answers what all have asked, through the others' parts.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/answer/answer_all.h"
#include "engine/answer/engine_spec.h"
#include "media/media_item.h"
#include "train/options/rollout_options.h"
#include "train/rollout_servers.h"

namespace apus {

class Engine;
class Follower;
class Model;
class StepLine;

class Rollout {
 public:
  // `options`: dtype and device of the cache. `spec.max_model_len` grows with the prompts. `save` writes the weights
  // (or the adapter) as they stand into a folder, for servers. `line`: to the ranks that hold the policy's other parts;
  // null: it is whole here.
  Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec = {}, RolloutServers::Save save = {},
          std::shared_ptr<StepLine> line = nullptr);
  ~Rollout();

  // In the order of the prompts; the i-th is answered with seed + i. Wakes the engine before and lets it sleep after,
  // also when it throws, unless a Shift goes on. TokenOut::weights is how often weights_changed() was said.
  // `media`: of each prompt; empty: there are none. `stop`: texts that end an answer; null: none. `seeds`: of each
  // prompt, instead. `ended`: is told of each answer when it is whole.
  // (Where the engine of this process answers them alone.)
  std::vector<FinishedAnswer> answers(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling,
                                      const std::vector<std::vector<MediaItem>>& media = {},
                                      const StopWords* stop = nullptr, const std::vector<uint64_t>& seeds = {},
                                      const AnswerEnded& ended = {});
  // Whether answers may be asked for while others are under way: of the engine of this process, alone.
  bool takes_more() const { return !servers_ && !line_; }
  // During a Shift: begins to answer, and returns. `ended` is told of each on the engine's thread. What is under way is
  // waited for where a longer text needs another engine, and given up at the shift's end.
  void begin(std::vector<EngineRequest> requests, const AnswerEnded& ended);
  // Whoever changed the policy's weights between two calls says so.
  void weights_changed() { ++version_; }
  // From now on these answer, if any are named, and have the weights as they stand; `sends`: this rank gives them to
  // them. All ranks call it before each round.
  void ask_servers(const RolloutServerOptions& servers, bool sends);
  // While they are held, servers answer by the weights that they were brought last: another thread may then ask them,
  // one order at a time, while the policy's change.
  void hold_servers(bool held) { held_ = held; }
  // From now on answers say which experts their tokens met.
  void tell_experts() { tells_experts_ = true; }
  int64_t longest() const;  // tokens that a prompt and its answer may have together
  // Of ranks that answer together some may ask more often than others: this one is done, until all of them are.
  void serve();
  const std::shared_ptr<StepLine>& line() const { return line_; }

  // While one lives, the engine stays awake between two calls, with all it has computed of the prompts.
  class Shift {
   public:
    explicit Shift(Rollout& rollout) : rollout_(rollout) { ++rollout_.shifts_; }
    ~Shift();
    Shift(const Shift&) = delete;

   private:
    Rollout& rollout_;
  };

 private:
  using Answers = std::vector<FinishedAnswer>;
  Answers by_servers(AnswerOrder order, const StopWords* stop);
  Answers by_engine(std::vector<EngineRequest> requests, const StopWords* stop, const AnswerEnded& ended = {});
  // What all ranks of the copy ask, and then this one's answers. Nothing: all are done.
  std::optional<Answers> together(const std::optional<AnswerOrder>& mine, const StopWords* stop);
  Engine& awake(int64_t tokens);       // for texts of so many tokens
  void follow(int64_t tokens);         // through the engine's round, as the rank of another part
  int64_t room(int64_t tokens) const;  // of the engine that is there for such texts, or must be made for them
  void rest();                         // unless a shift goes on
  int shifts_ = 0;
  int64_t version_ = 0, version_of_cache_ = 0, version_of_servers_ = 0;
  bool held_ = false, tells_experts_ = false;
  const Model& policy_;
  const at::TensorOptions options_;
  EngineSpec spec_;
  const RolloutServers::Save save_;
  const std::shared_ptr<StepLine> line_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AnswersUnderWay> under_way_;  // of a shift
  std::unique_ptr<Follower> follower_;          // in its place where another rank has it
  std::unique_ptr<RolloutServers> servers_;     // null: the engine answers
};

}  // namespace apus
