// SPDX-License-Identifier: Apache-2.0
// Conversations in all the forms people keep them in, brought into one: [{"role", "content", "loss"?, "loss_scale"?}]
// with the roles system, user, assistant, tool_call, tool and tool_response, and texts as contents.
#pragma once

#include <string>

#include "base/json.h"
#include "data/rows/row.h"

namespace apus {

// `key` is the column's name in messages; media found in content parts are added
// to the lists in `media` ("images", ...).
Json normalize_messages(const Json& value, Json& media, const Origin& origin, const std::string& key);

// [{"type": "function", "function": {...}}] from a list, one definition, or JSON text of either.
Json normalize_tools(const Json& value, const Origin& origin, const std::string& key);

// What follows the last user or tool message is replaced by `answer` (a text, or messages).
Json with_other_answer(const Json& messages, const Json& answer, Json& media, const Origin& origin,
                       const std::string& key);

}  // namespace apus
