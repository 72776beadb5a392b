// SPDX-License-Identifier: Apache-2.0
// Requests of OpenAI's Responses API as calls. Pure: JSON in, a call or an ApiError out.
#pragma once

#include <optional>

#include "serve/openai_request.h"

namespace apus {

struct ResponsesCall {
  ChatCall chat;
  std::string previous;  // previous_response_id; empty: none
  Json messages;         // of this request, without the instructions: what a next request goes on from
  bool store = true;
  Json shown;  // what a response repeats of its request
};

// `before`: gives the messages of the response with this id.
using PriorMessages = std::function<Json(const std::string& id)>;
ResponsesCall read_responses_request(const Json& body, const RequestLimits& limits, const PriorMessages& before,
                                     Json* schema = nullptr);

}  // namespace apus
