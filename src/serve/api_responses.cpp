// SPDX-License-Identifier: Apache-2.0
// The handlers of OpenAI's Responses API.
#include <nlohmann/json.hpp>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/responses_answer.h"
#include "serve/responses_request.h"

namespace apus {

namespace {
ApiError unknown_response(const std::string& id, const char* param) {
  return ApiError(404,
                  str("There is no response '", id.substr(0, 128), "': it was never stored, or so many came later"),
                  param, "response_not_found");
}
}  // namespace

void Api::responses(const Exchange& e) {
  check_talks();
  const auto before = [&](const std::string& id) {
    const auto kept = responses_.get(id);
    if (!kept) throw unknown_response(id, "previous_response_id");
    return kept->messages;
  };
  ResponsesCall call = read_responses_request(e.body(), {.max_logprobs = service_.spec().max_logprobs}, before);
  note_ignored(e, call.chat.ignored);
  Service::Prepared prepared = service_.prepare(call.chat);
  prepared.form.head.id = random_id("resp_", 48);
  ResponseForm form{prepared.form, std::move(call.shown), nullptr};
  if (call.store)
    form.keep = [self = shared_from_this(), messages = std::move(call.messages)](const Json& response,
                                                                                 const Json& message) {
      Json all = messages;
      all.push_back(message);
      self->responses_.put(response["id"], {response, all});
    };
  auto writer =
      call.chat.stream ? streamed_response(std::move(form), e.reply) : whole_response(std::move(form), to_reply(e));
  start(e, std::move(prepared), std::move(writer));
}

void Api::stored_response(const Exchange& e) {
  const std::string id = e.call->path.substr(std::string_view("/v1/responses/").size());
  if (e.call->method == "DELETE") {
    if (!responses_.erase(id)) throw unknown_response(id, "response_id");
    return send_json(*e.reply, {{"id", id}, {"object", "response"}, {"deleted", true}});
  }
  const auto kept = responses_.get(id);
  if (!kept) throw unknown_response(id, "response_id");
  send_json(*e.reply, kept->response);
}

}  // namespace apus
