// SPDX-License-Identifier: Apache-2.0
// OpenAI's requests, with the further fields that vLLM and ms-swift know, as calls.
// Pure: JSON in, a call or an ApiError out.
#pragma once

#include "serve/calls.h"

namespace apus {

class Fields;

struct RequestLimits {
  int64_t max_logprobs = 20;  // top_logprobs and prompt_logprobs
};

// `schema` (of every reader): takes what the request may be, as JSON schema; the body is an empty object then.
ChatCall read_chat_request(const Json& body, const RequestLimits& limits, Json* schema = nullptr);
CompletionCall read_completion_request(const Json& body, const RequestLimits& limits, Json* schema = nullptr);
std::vector<Input> read_inputs(const Fields& f, const char* key);  // one or several texts, or lists of token ids
EmbeddingCall read_embedding_request(const Json& body, Json* schema = nullptr);

// Messages as chat templates know them. Parts of text become one text. Images, videos and sounds become tags in it and
// entries of `media` (serve/media_parts.h); where that is null, they are refused, as files always are.
Json chat_messages(const Json& messages, Json* media = nullptr);
// {"role", "content", ...} from one message of a request; `where` names it in errors.
Json chat_message(const Json& message, const std::string& where, Json* media = nullptr);
// The tools that may be called, and what `tool_choice` makes of the answer's form.
void read_tools(const Json* tools, const Json* choice, ChatCall& call);

}  // namespace apus
