// SPDX-License-Identifier: Apache-2.0
// The handlers of Anthropic's endpoints.
#include <nlohmann/json.hpp>

#include "serve/anthropic_answer.h"
#include "serve/anthropic_request.h"
#include "serve/api.h"

namespace apus {

void Api::messages(const Exchange& e) {
  check_talks();
  const ChatCall call = read_messages_request(e.body());
  note_ignored(e, call.ignored);
  answer(e, service_.prepare(call), call.stream, {"msg_", 24, streamed_message, whole_message}, to_reply(e));
}

void Api::count_tokens(const Exchange& e) {
  send_json(*e.reply, {{"input_tokens", service_.chat_ids(read_messages_request(e.body(), /*counting=*/true)).size()}});
}

}  // namespace apus
