// SPDX-License-Identifier: Apache-2.0
// The engine as its users (server, batch inference, rollout) see it. No tensor library here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/answer/sampling_fields.h"
#include "guide/constraint.h"
#include "media/media_item.h"

namespace apus {

enum class Finish { None, Stop, Length, Cancelled, Failed };

struct TokenOut {
  int32_t id = -1;
  float logprob = 0;                           // under the distribution before temperature and filters
  std::vector<std::pair<int32_t, float>> top;  // best first
  int64_t weights = 0;                         // version of the weights it came from: how often they had changed
};

struct EngineEvent {
  int64_t request = 0;
  std::vector<TokenOut> tokens;  // new tokens of this event; the stop token itself is included
  Finish finish = Finish::None;
  std::string error;  // Finish::Failed: why
  // Once, when prompt_logprobs was asked: the prompt's tokens (first has none).
  std::vector<TokenOut> prompt;
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache (first event)
  // Where the request asks: of the tokens that were read since the last event, the prompt's first, the experts that
  // each met in all mixtures (nn/expert_choices.h), one token behind the other. The last token of all is not read.
  std::vector<int16_t> experts;
  // Tokens guessed since the last event, and those of `tokens` that were guessed.
  int64_t drafted = 0, accepted = 0;
};

struct EngineRequest {
  std::vector<int32_t> prompt;
  int32_t second = 0;            // of an encoder's two texts, where the second begins
  std::vector<MediaItem> media;  // which of its tokens stand for images, videos or sounds, in its order
  Sampling sampling;
  int priority = 0;     // higher goes first
  std::string adapter;  // a loaded LoRA adapter; empty: none
  std::shared_ptr<Constraint> constraint;
  // No tokens: numbers are wanted, which the model's task reads off the last position's hidden state, or that itself.
  bool embedding = false;
  bool tells_experts = false;                    // which its tokens met; of a mixture alone
  std::function<void(const EngineEvent&)> sink;  // called on the engine's thread; must not block
  std::function<void(const std::vector<float>&)> embedding_sink;
};

struct EngineStats {
  int64_t running = 0, waiting = 0, blocks_total = 0, blocks_used = 0, blocks_cached = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0, cached_tokens = 0, preemptions = 0, steps = 0, failed_steps = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;
};

class TextEngine {
 public:
  virtual ~TextEngine() = default;
  virtual int64_t submit(EngineRequest request) = 0;  // thread-safe; Fault::Usage when the prompt cannot fit
  // All of them or none, and the same step sees them all: what an answer is made beside does not depend on the moment.
  virtual std::vector<int64_t> submit_all(std::vector<EngineRequest> requests) {
    std::vector<int64_t> ids;
    try {
      for (EngineRequest& request : requests) ids.push_back(submit(std::move(request)));
    } catch (...) {
      for (const int64_t id : ids) cancel(id);
      throw;
    }
    return ids;
  }
  virtual void cancel(int64_t request) = 0;  // thread-safe; its blocks are free before the next step
  virtual EngineStats stats() const = 0;     // thread-safe
  virtual int64_t max_model_len() const = 0;
  virtual int64_t vocab() const = 0;
  virtual int64_t known_words() const { return vocab(); }  // of prompts with media
  virtual std::vector<std::string> adapters() const = 0;
  virtual void load_adapter(const std::string& name, const std::string& dir) = 0;
  virtual void unload_adapter(const std::string& name) = 0;
  // Gives memory back: level 1 the cache, level 2 the weights too.
  // Requests wait until wake(), which reads the weights again.
  virtual void sleep(int level = 1) = 0;
  virtual void wake() = 0;
};

}  // namespace apus
