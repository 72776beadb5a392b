// SPDX-License-Identifier: Apache-2.0
// The engine: one thread that drives a model for whoever asks, on one device or over several (Model::devices). The same
// object serves batch inference, the server, and the rollouts of reinforcement learning.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/answer/guess_length.h"
#include "engine/answer/text_engine.h"
#include "engine/cache_size.h"
#include "engine/recorded_decode.h"
#include "engine/sampler.h"
#include "engine/schedule/scheduler.h"
#include "engine/step_builder.h"
#include "engine/step_line.h"
#include "models/model.h"

namespace apus {

// What the engine leaves to others: how a LoRA adapter is attached and detached, and where weights come from.
struct ModelHooks {
  // An attached adapter of those requests that name none; empty: the model itself answers them.
  std::string always;
  // Another one that the model came with, which requests ask for by this name; empty: none.
  std::string attached;
  std::function<void(const std::string& name, const std::string& dir)> load;
  std::function<void(const std::string& name)> unload;
  // For sleep and wake, both or none: the model goes away, and comes again, the same.
  std::function<void()> drop_model;
  std::function<const Model*()> read_model;
  // What requests for numbers get of their last positions' hidden states, [R, D] -> [R, any]; none: the states.
  std::function<at::Tensor(const Model& model, const at::Tensor& last_RD, const Step& step)> read_off;
  // A small model that guesses at answers (EngineSpec::draft), on the engine's device.
  std::shared_ptr<const Model> draft;
  // Or a head that does, which did not come with the model.
  std::shared_ptr<const GuessHead> guess_head;
  // How steps are recorded that give every sequence one token; empty: as the device does it.
  Recorder recorder;
  // To the ranks that hold the other parts of the model; null: it is whole here.
  std::shared_ptr<StepLine> line;
};

class Drafter;

class Engine : public TextEngine {
 public:
  // `options`: dtype of the cache, and the device (of the embedding, when the model lies on several). The model is not
  // the engine's and must outlive it, but for the hooks.
  Engine(const Model& model, at::TensorOptions options, EngineSpec spec, ModelHooks hooks = {});
  ~Engine() override;  // whoever still waits is told that it was cancelled

  int64_t submit(EngineRequest request) override;
  std::vector<int64_t> submit_all(std::vector<EngineRequest> requests) override;
  void cancel(int64_t request) override;
  EngineStats stats() const override;
  int64_t max_model_len() const override { return max_model_len_; }
  int64_t cache_tokens() const { return cache_spec_.blocks * cache_spec_.block_size; }
  int64_t vocab() const override { return vocab_; }
  int64_t known_words() const override { return known_words_; }
  std::vector<std::string> adapters() const override;
  void load_adapter(const std::string& name, const std::string& dir) override;
  void unload_adapter(const std::string& name) override;  // waits for the requests that use it
  void sleep(int level = 1) override;
  void wake() override;
  // Does this with the model, on the engine's thread between two steps, and waits for it.
  void use_model(const std::function<void(const Model&)>& work);
  // Until it is woken, nothing is told to the ranks that hold the model's other parts: they may do other things.
  void rest();
  // Whoever changed the model's weights, while the engine slept or had nothing to do, says so: the cache holds keys of
  // the old ones and is forgotten. Requests under way go on with the new ones. Gives their version (TokenOut::weights).
  int64_t weights_changed();
  // Fault::Comm when a rank that holds a part of the model is gone: nothing can be answered any more.
  void require_whole() const;

 private:
  struct Active {
    EngineRequest request;
    TokenCounts counts;
    std::vector<TokenOut> prompt;  // log-probs so far
    int64_t before = 0;            // words that the adapter put before the prompt
    bool told_cached = false;
    int64_t drafted = 0;  // guesses that its receiver has not been told of
    GuessLength guesses;
    int64_t told_experts = 0;  // tokens whose experts its receiver has been told of
  };
  struct Leaving {
    std::string name;
    std::shared_ptr<std::promise<void>> done;
  };

  void check(EngineRequest& request) const;  // and bounds its answer
  std::unique_ptr<KvCache> new_cache() const;
  void run();
  void run_on_thread(std::function<void()> work);  // and waits for it; the statistics are of after it
  void attach(const std::string& name, const std::string& dir);
  void start(int64_t id, uint64_t salt, EngineRequest request);
  bool wait_for_work(std::deque<std::function<void()>>& work);
  void stay_in_touch();
  void lose(const std::string& why);
  void one_step();
  void fail_step(const std::vector<int64_t>& ids, const std::exception& error);  // of these sequences
  // One step behind the device (engine_ahead.cpp). A step of one token a sequence that the device was asked for, whose
  // tokens the host does not know yet:
  struct Flight {
    std::vector<int64_t> ids;  // of its sequences; some may be over by now
    DrawnTokens drawn;
  };
  bool may_fly(const StepPlan& plan) const;
  Flight launch(const StepPlan& plan, const at::Tensor& id_S);  // undefined: the host knows them
  void fly_on();
  void land(Flight flight);
  void land();  // what is under way, if anything is
  // Guesses (engine_drafts.cpp):
  const GuessHead* guess_head(const Model& model) const;
  int64_t drafter_bytes(const Model& model) const;  // of its keys and values, in a block
  std::unique_ptr<Drafter> make_drafter() const;    // none: guesses are looked up, if there are any
  void add_drafts(StepPlan& plan);
  // Of each item up to `most`, as far as there is room.
  std::vector<std::vector<int32_t>> guesses(const StepPlan& plan, int64_t most);
  // Of a sequence whose tokens [begin, end) go through layers with states, some of them guessed.
  struct KeptState {
    int64_t id, begin, end;
    std::vector<at::Tensor> state;
  };
  std::vector<KeptState> keep_states(const StepPlan& plan) const;
  void put_back(const std::vector<KeptState>& kept);
  void compute(const StepPlan& plan);
  std::vector<std::string> adapters_of(const StepPlan& plan) const;  // empty: none are loaded
  bool gives_one_token(const StepPlan::Item& item) const;            // and reads one
  SampleRow sample_row(int64_t id, int64_t unknown = 0) const;
  at::Tensor logits(const at::Tensor& hidden_TD, const std::vector<int64_t>& rows, const Step& step,
                    const std::vector<std::string>& adapter_of_row);
  void score_prompts(const StepPlan& plan, const at::Tensor& hidden_TD, const Step& step);
  // Logits of a step in which every sequence gets its next token, where the device has recorded such steps; undefined:
  // it has not.
  at::Tensor recorded_logits(const StepPlan& plan, const std::vector<std::string>& adapter,
                             const at::Tensor& id_S = {});
  using LogitsOf =
      std::function<at::Tensor(const std::vector<int64_t>& rows, const std::vector<std::string>& adapter_of_row)>;
  void take_samples(const StepPlan& plan, const LogitsOf& logits_of);
  std::vector<int64_t> give_numbers(const StepPlan& plan, const at::Tensor& hidden_TD, const Step& step);
  void accept(const Sequence& sequence, TokenOut out, const std::string& error);
  void keep_experts(const Step& step);
  std::vector<int16_t> experts_met_since(const Sequence& sequence, int64_t token) const;
  const std::string& adapter_of(const Active& active) const;
  // Words that the adapter of such a request puts before its prompt.
  int64_t prompt_words(const std::string& adapter) const;
  void tell(int64_t id, EngineEvent event);  // to its sink
  void finish(int64_t id, Finish why, std::string error = {});
  bool enters(const std::string& adapter) const;
  void detach_unused();
  void publish_stats();

  const Model* model_;  // none after sleep(2)
  const int64_t vocab_, known_words_, experts_met_of_token_;
  const at::TensorOptions options_;
  const EngineSpec spec_;
  const ModelHooks hooks_;
  const int threads_;
  const bool runs_ahead_;
  int64_t max_model_len_ = 0;
  KvCache::Spec cache_spec_;
  int64_t pictures_ = 0;  // that the model keeps beside the cache

  // The thread's own.
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<KvCache> cache_;    // none while asleep
  std::unique_ptr<Drafter> drafter_;  // where it has a cache of its own, the blocks are those of cache_
  // What the tokens in the cache met, by their slots (nn/expert_choices.h). Empty: nobody has asked since it was made.
  std::vector<int16_t> experts_met_;
  StepBuilder builder_;
  RecordedDecode recorded_;
  Sampler sampler_;
  std::optional<Flight> flight_;
  std::map<int64_t, Active> active_;
  std::vector<Leaving> leaving_;
  EngineStats counted_;
  int64_t weights_ = 0;   // how often they have changed
  bool resting_ = false;  // the others do not listen

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_up_;
  std::deque<std::function<void()>> inbox_;
  std::map<std::string, uint64_t> adapter_salt_;  // loaded ones; a salt is never used twice
  std::map<std::string, int64_t> prompt_words_;   // of those that bring some; "": of ModelHooks::always
  std::map<std::string, int64_t> entering_;       // requests in the inbox, by their adapter
  EngineStats stats_;
  int64_t next_id_ = 1, starting_ = 0;
  // Below 2^32: the other half is for the lengths of prompts beyond alike_up_to_
  uint64_t next_salt_ = 1;
  int64_t alike_up_to_ = 0;
  bool stopping_ = false;
  std::string lost_;  // why a rank of the model is gone

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace apus
