// SPDX-License-Identifier: Apache-2.0
// Anthropic's /v1/messages as a chat call. Pure: JSON in, a call or an ApiError out.
#pragma once

#include "serve/calls.h"

namespace apus {

// `counting`: for count_tokens, where max_tokens may be missing.
ChatCall read_messages_request(const Json& body, bool counting = false, Json* schema = nullptr);

}  // namespace apus
