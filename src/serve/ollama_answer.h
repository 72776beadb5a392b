// SPDX-License-Identifier: Apache-2.0
// Answers in Ollama's form: one object, or a line of JSON for each piece and a last one with times and counts.
#pragma once

#include <memory>

#include "serve/openai_answer.h"

namespace apus {

// Of /api/chat: {"message": {"role", "content", "thinking", "tool_calls"}}.
std::unique_ptr<AnswerWriter> whole_ollama_chat(AnswerForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_ollama_chat(AnswerForm form, std::shared_ptr<Responder> reply);
// Of /api/generate: {"response", "thinking"}.
std::unique_ptr<AnswerWriter> whole_ollama_text(AnswerForm form, WholeSink sink);
std::unique_ptr<AnswerWriter> streamed_ollama_text(AnswerForm form, std::shared_ptr<Responder> reply);

// Of a list of models; clients look for all of its keys. bytes 0: not known.
Json ollama_entry(const std::string& name, int64_t modified, int64_t bytes);
std::string ollama_time(int64_t seconds);  // since 1970: "2026-11-28T01:02:03Z"

}  // namespace apus
