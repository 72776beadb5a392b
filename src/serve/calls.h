// SPDX-License-Identifier: Apache-2.0
// What clients ask for, whichever API they speak: a request's JSON as values, before any name in it is looked up.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/answer/generation_config.h"

namespace apus {

// The form that an answer must have.
struct Guide {
  enum class Kind { None, JsonObject, JsonSchema, Regex, Choice, Grammar, StructuralTag, ToolCalls } kind = Kind::None;
  Json schema;                       // JsonSchema, StructuralTag; ToolCalls: the tools that may be called
  std::string pattern;               // Regex, Grammar
  std::vector<std::string> choices;  // Choice
  bool several = false;              // ToolCalls: more than one call
  std::string param;                 // the field that asked for it
};

struct AnswerCall {
  std::string model;  // empty: the base model
  SamplingWishes wishes;
  int64_t usual_tokens = INT32_MAX;  // of an answer, when neither the request nor the server says
  std::optional<uint64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_ids;
  bool keep_stop = false, ignore_eos = false, skip_special = true;
  std::vector<std::pair<int32_t, float>> logit_bias;
  int64_t top_logprobs = -1, prompt_logprobs = -1;  // -1: not asked for
  bool stream = false, stream_usage = false, usage_in_every_chunk = false;
  bool token_ids = false;  // the ids of prompt and answer beside the text
  int priority = 0;        // higher goes first
  Guide guide;
  std::vector<std::string> ignored;  // fields that have no effect here, such as misspelt ones
};

// How an answer is to be heard.
struct SpokenWish {
  std::string voice;         // empty: the usual one
  std::string form = "wav";  // media/sound_out.h
};

struct ChatCall : AnswerCall {
  // As chat templates know them: content is text, arguments are objects.
  Json messages;
  Json media = Json::object();  // {"images": [...], "videos", "audios"}: one for each tag <image> in the messages
  Json tools;                   // [{"type": "function", "function": {...}}], or null
  bool parallel_calls = true;
  Json kwargs = Json::object(), documents;
  std::optional<std::string> effort;  // how hard to think; "none": not at all
  bool old_functions = false;         // the request was in OpenAI's older form: so is the answer
  std::string begin;                  // of the answer, which goes on behind it
  std::optional<SpokenWish> spoken;   // besides being written
  bool boxes = false;                 // those of the answer are wanted in pixels of the only picture
  bool continue_final_message = false, add_generation_prompt = true, separate_reasoning = true;
};

struct Input {  // a text, or its tokens
  std::string text;
  std::vector<int32_t> ids;
  bool is_text = true;
};

struct CompletionCall : AnswerCall {
  std::vector<Input> prompts;
  std::optional<std::string> suffix;                           // the answer goes between a prompt and this
  bool echo = false, add_special = true, only_prompt = false;  // only_prompt: max_tokens 0
};

struct EmbeddingCall {
  std::string model;
  std::vector<Input> inputs;
  bool base64 = false;
  std::optional<int64_t> dimensions;
  int priority = 0;
  std::vector<std::string> ignored;
};

// What several texts are to the model: labels, rewards.
struct TextsCall {
  std::string model;
  std::vector<Input> inputs;
  Json messages;  // instead: one conversation; null: none
  bool base64 = false, activation = true;
  int priority = 0;
  std::vector<std::string> ignored;
};

// Pairs of texts: how well each second one answers the first, or how alike they are.
struct PairsCall {
  std::string model, instruction;
  std::vector<std::string> first, second;  // as many, or one first for all
  std::optional<bool> activation;          // scores between 0 and 1; absent: as the server says
  int64_t top_n = INT64_MAX;               // of a ranking
  bool return_documents = true;
  int priority = 0;
  std::vector<std::string> ignored;
};

}  // namespace apus
