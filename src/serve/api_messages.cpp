// SPDX-License-Identifier: Apache-2.0
// The handlers of Anthropic's endpoints.
#include <nlohmann/json.hpp>

#include "serve/anthropic_answer.h"
#include "serve/anthropic_request.h"
#include "serve/api.h"

namespace apus {

void Api::messages(const Exchange& e) {
  const ChatCall call = read_messages_request(e.body());
  note_ignored(e, call.ignored);
  auto prepared = service_.prepare(call);
  AnswerForm& form = prepared.form;
  form.head.id = random_id("msg_", 24);
  auto writer = call.stream ? streamed_message(form, e.reply) : whole_message(form, to_reply(e));
  generate(e, std::move(prepared), std::move(writer));
}

void Api::count_tokens(const Exchange& e) {
  send_json(*e.reply, {{"input_tokens", service_.chat_ids(read_messages_request(e.body(), /*counting=*/true)).size()}});
}

}  // namespace apus
