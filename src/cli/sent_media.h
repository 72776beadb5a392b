// SPDX-License-Identifier: Apache-2.0
// A row's messages as servers of OpenAI's API take them, with its pictures, videos and sounds.
#pragma once

#include "base/json.h"

namespace apus {

// Each tag in a text becomes a part of the message, of the row's next entry of that kind: a URL as it is, a file as a
// data URI. Fault::Data for what cannot be read. Messages without tags stay as they are.
Json sent_messages(const Json& row);

}  // namespace apus
