// SPDX-License-Identifier: Apache-2.0
// Ollama's requests as OpenAI's, which are read as any others then. Pure: JSON in, JSON or an ApiError out.
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

std::string ollama_name(const std::string& model);  // without the tag :latest, which every name may have

Json ollama_chat_request(const Json& body, Json* schema = nullptr);      // /api/chat
Json ollama_generate_request(const Json& body, Json* schema = nullptr);  // /api/generate: one question, as a chat
Json ollama_completion_request(const Json& body,
                               Json* schema = nullptr);  // the same with raw or suffix: the text as it is
std::string ollama_show_request(const Json& body, Json* schema = nullptr);  // /api/show: the model's name
Json ollama_embedding_request(const Json& body,
                              Json* schema = nullptr);  // /api/embed and, with "prompt", /api/embeddings

}  // namespace apus
