// SPDX-License-Identifier: Apache-2.0
// Answers in the form of OpenAI's Responses API.
#pragma once

#include "serve/openai_answer.h"

namespace apus {

struct ResponseForm {
  AnswerForm answer;
  Json shown;  // what a response repeats of its request
  // Told the whole response, and what the model said as a message of the chat API, before the client has it.
  std::function<void(const Json& response, const Json& message)> keep;
};

std::unique_ptr<AnswerWriter> whole_response(ResponseForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_response(ResponseForm form, std::shared_ptr<Responder> reply);

}  // namespace apus
