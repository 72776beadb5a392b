// SPDX-License-Identifier: Apache-2.0
// Prompts and answers as JSON, between a trainer and a server that rolls out for it: token ids both ways.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/answer/answer_all.h"

namespace apus {

// Many prompts that are sampled alike, each with a seed of its own.
struct AnswerOrder {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<uint64_t> seeds;
  Sampling sampling;
  int64_t version = 0;         // of the weights that are to answer; the server's must be that one
  bool tells_experts = false;  // EngineRequest::tells_experts
};

Json to_wire(const AnswerOrder& order);
AnswerOrder order_of_wire(const Json& json);  // Fault::Data, bounded
Json to_wire(const std::vector<FinishedAnswer>& answers);
std::vector<FinishedAnswer> answers_of_wire(const Json& json);  // Fault::Data

// FinishedAnswer::experts: base64 of 16 bits each, the lower ones first.
std::string experts_as_text(const std::vector<int16_t>& experts);
std::vector<int16_t> experts_of_text(const std::string& text);  // Fault::Data

}  // namespace apus
