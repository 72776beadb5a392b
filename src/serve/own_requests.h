// SPDX-License-Identifier: Apache-2.0
// Requests that are nobody's standard: token ids of texts, many chats at once, adapters, a trainer's weights.
// Pure: JSON in, a call or an ApiError out; `schema` as in serve/openai_request.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct TokenizeCall {
  std::string model, prompt;
  bool chat = false;  // the body holds messages: it is read as a chat
  bool add_special = true, pieces = false;
};
TokenizeCall read_tokenize_request(const Json& body, Json* schema = nullptr);
std::vector<int32_t> read_detokenize_request(const Json& body, Json* schema = nullptr);

struct InferCall {
  Json rows, config;  // requests of chats, and what holds for all of them
  std::optional<std::string> model;
};
InferCall read_infer_request(const Json& body, Json* schema = nullptr);

struct AdapterCall {
  std::string name, folder;  // folder: of one that is loaded
};
AdapterCall read_load_adapter_request(const Json& body, Json* schema = nullptr);
AdapterCall read_unload_adapter_request(const Json& body, Json* schema = nullptr);

int64_t read_weights_request(const Json& body, Json* schema = nullptr);  // the version that is complete

}  // namespace apus
