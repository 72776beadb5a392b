// SPDX-License-Identifier: Apache-2.0
// Reads requests for labels, rewards, scores and rankings, as vLLM, Cohere and Jina have them.
#pragma once

#include "serve/calls.h"

namespace apus {

TextsCall read_texts_request(const Json& body, Json* schema = nullptr);   // {"input"} or {"messages"}
PairsCall read_score_request(const Json& body, Json* schema = nullptr);   // {"text_1", "text_2"}
PairsCall read_rerank_request(const Json& body, Json* schema = nullptr);  // {"query", "documents", "top_n"}

}  // namespace apus
