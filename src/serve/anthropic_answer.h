// SPDX-License-Identifier: Apache-2.0
// Answers in the form of Anthropic's messages: content blocks, whole or as a stream of events.
#pragma once

#include "serve/openai_answer.h"

namespace apus {

std::unique_ptr<AnswerWriter> whole_message(AnswerForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_message(AnswerForm form, std::shared_ptr<Responder> reply);

}  // namespace apus
