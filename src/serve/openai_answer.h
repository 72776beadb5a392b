// SPDX-License-Identifier: Apache-2.0
// Answers in OpenAI's form: whole objects and streams of chunks, for chats and for plain completions.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_stream.h"
#include "serve/http.h"

namespace apus {

struct AnswerHead {
  // fingerprint: names what made the answer; where it has changed, the same seed may give another answer.
  std::string id, model, fingerprint;
  int64_t created = 0;
};

struct AnswerForm {
  AnswerHead head;
  std::shared_ptr<const Tokenizer> tokenizer;
  size_t answers = 1;         // n, or n for each prompt
  int64_t top_logprobs = -1;  // -1: none
  bool stream_usage = false, usage_in_every_chunk = false;
  bool token_ids = false;
  std::vector<int32_t> prompt_ids;  // shown with token_ids
  ToolFormat tool_format = ToolFormat::None;
  bool old_functions = false;                                  // calls as OpenAI's API had them before there were tools
  std::vector<std::string> echo;                               // a completion's prompts, shown before its answers
  bool only_prompt = false;                                    // the answer itself is left out
  std::function<Json(const std::string& content)> boxes = {};  // of a chat's answer, in pixels; null: not wanted
};

Json usage_json(const Usage& usage);
std::string sse_data(const Json& event);                 // "data: {...}\n\n"
std::string random_id(const char* prefix, int letters);  // hexadecimal
std::string call_id(ToolFormat format);                  // of a tool call
// [null, {"id": {...}}, ...]
Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenOut>& prompt);

// Where a whole answer goes.
struct WholeSink {
  std::function<void(Json)> done;
  std::function<void(const ApiError&)> failed;
};

std::unique_ptr<AnswerWriter> whole_chat(AnswerForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_chat(AnswerForm form, std::shared_ptr<Responder> reply);
std::unique_ptr<AnswerWriter> whole_completion(AnswerForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_completion(AnswerForm form, std::shared_ptr<Responder> reply);

}  // namespace apus
