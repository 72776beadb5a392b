// SPDX-License-Identifier: Apache-2.0
// A model that is served: from a call to the engine's requests and back to ids and texts, without any HTTP.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "data/encode/row_media.h"
#include "engine/answer/chat.h"
#include "engine/answer/text_voice.h"
#include "guide/guide.h"
#include "serve/answer_stream.h"
#include "serve/calls.h"
#include "serve/media_parts.h"
#include "serve/openai_answer.h"
#include "serve/plain_specials.h"
#include "text/rerank_prompt.h"

namespace apus {

// What the model gives, where that is no words.
struct ServedTask {
  std::string name = "causal_lm";   // or seq_cls, token_cls, embedding, reranker, generative_reranker, speech
  std::vector<std::string> labels;  // seq_cls, token_cls: their names
  std::string problem_type;         // and what they mean (text/scores.h)
  RerankWords words;                // generative_reranker
  bool activation = true;           // scores of pairs are between 0 and 1
  int64_t pad = -1;                 // a head of numbers passes over this token at a text's end
  bool talks() const { return name == "causal_lm"; }
  bool gives_vectors() const { return talks() || name == "embedding"; }
  bool ranks() const { return name.ends_with("reranker") || (name == "seq_cls" && labels.size() == 1); }
};

class RolloutDoor;  // serve/rollout_door.h

struct ServiceSpec {
  ServedTask task;
  std::string model_name, owned_by = "apus";
  std::vector<std::string> aliases;  // other names of the model itself, such as its folder
  std::string usual;                 // the adapter of requests that name no model; empty: the model itself
  TextEngine* engine = nullptr;
  RolloutDoor* door = nullptr;    // through which a trainer brings weights; null: none does
  TextVoice* voice = nullptr;     // null: answers are not spoken
  std::string speaker, language;  // of requests that name none
  std::shared_ptr<const LearntVoice> like;
  SourceLimits media_limits;  // of what requests bring
  const Chat* chat = nullptr;
  std::shared_ptr<const MediaReader> media;  // null: the model reads text only
  MediaRules media_rules;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> stop_ids;
  SamplingWishes flags, checkpoint;  // decide what a request leaves open, in this order
  std::vector<std::string> stops;    // of every answer
  uint64_t seed = 42;
  ToolFormat tool_format = ToolFormat::None;
  bool reasoning = false;  // answers may begin with <think>
  // Special tokens in what users write are tokens, not text.
  bool allow_special_tokens = false;
  int64_t max_logprobs = 20, max_waiting = 0;  // max_waiting: requests; 0: any number
};

class Service {
 public:
  explicit Service(ServiceSpec spec);

  // What the answers to a call are made with, and their form but for its id. ApiError when it cannot be.
  struct Prepared {
    AnswerStreamSpec stream;
    AnswerForm form;
  };
  Prepared prepare(const ChatCall& call) const;
  Prepared prepare(const CompletionCall& call) const;
  std::vector<EngineRequest> prepare(const EmbeddingCall& call) const;
  std::vector<EngineRequest> prepare(const TextsCall& call) const;
  // Of a model of scores one request a pair; of one of vectors the first texts, then the second ones.
  std::vector<EngineRequest> prepare(const PairsCall& call) const;

  std::string named(const std::string& model) const;                     // as answers name what was asked for
  void check_model(const std::string& name) const { adapter_of(name); }  // ApiError 404
  std::vector<int32_t> chat_ids(const ChatCall& call) const {
    check_model(call.model);
    return chat_prompt(call).ids;
  }
  std::vector<int32_t> encode(const std::string& text, bool add_special, const char* param) const;
  // That the model knows them; `media`: there are media among them.
  void check_ids(const std::vector<int32_t>& ids, const char* param, bool media = false) const;
  const ServiceSpec& spec() const { return spec_; }
  std::vector<std::string> models() const;  // its own name, then the adapters
  Json usual_sampling() const;              // of requests that leave it open

 private:
  struct Prompt {
    std::string text;
    std::vector<int32_t> ids;
    std::vector<MediaItem> media;
    std::vector<ImageSize> images;  // as they came
  };
  Prompt chat_prompt(const ChatCall& call) const;
  // The images, videos and sounds of a call, put into its messages.
  RowMedia read_media(ChatCall& call) const;
  MarkedText text_ids(const Json& messages, const Json& words, const char* param) const;
  MarkedText pair_ids(const PairsCall& call, const std::string& first, const std::string& second) const;
  EngineRequest for_numbers(MarkedText text, const std::string& model, int priority, const char* param) const;
  std::string render(const ChatCall& call) const;
  Json template_words(const ChatCall& call) const;
  std::string adapter_of(const std::string& model) const;  // empty: the model itself
  Sampling sampling(const AnswerCall& call) const;
  void check_room(const std::vector<int32_t>& ids, const char* param, bool answers, bool media = false) const;
  void check_queue(size_t requests) const;
  // Null: any answer will do. `thinks`: the answer begins with thoughts, which may have any form. `calls`: it may be
  // calls of these tools instead.
  std::unique_ptr<Constraint> constraint(const Guide& guide, bool thinks, const GuideTools* calls) const;
  std::unique_ptr<Constraint> constraint(const ChatCall& call, const ChatParserOptions& parser, bool thinks) const;
  void fill(const AnswerCall& call, const Prompt& prompt, uint64_t seed, const Constraint* form, Prepared& out) const;
  AnswerForm form(const AnswerCall& call) const;
  AnswerText::Spec answer_spec(const AnswerCall& call) const;

  const ServiceSpec spec_;
  const GuideWords words_;
  const PlainSpecials specials_;
  size_t longest_token_ = 1;                // bytes
  mutable std::atomic<uint64_t> seeds_{0};  // for requests that bring none
};

}  // namespace apus
