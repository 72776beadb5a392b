// SPDX-License-Identifier: Apache-2.0
#include "serve/own_requests.h"

#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {

namespace {

constexpr size_t kMostIds = 1 << 22, kMostRows = 2048;

bool plain_name(const std::string& name) {
  if (name.empty() || name.size() > 200) return false;
  for (const char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("._-:/@+").find(c) == std::string_view::npos)
      return false;
  return true;
}

}  // namespace

TokenizeCall read_tokenize_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  TokenizeCall call;
  call.model = f.text("model").value_or("");
  call.chat = f.list("messages") != nullptr;
  const auto said = f.text("prompt"), content = f.text("content");  // vLLM's name of it, and llama-server's
  const auto prompt = said ? said : content;
  if (!prompt && !call.chat) f.missing("prompt", "a text; or give 'messages'");
  call.prompt = prompt.value_or("");
  call.add_special = f.boolean("add_special_tokens").value_or(f.boolean("add_special").value_or(true));
  call.pieces = f.boolean("return_token_strs").value_or(false);
  return call;
}

std::vector<int32_t> read_detokenize_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  if (!f.find("tokens")) f.missing("tokens", "a list of token ids");
  return f.ids("tokens", kMostIds);
}

InferCall read_infer_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  InferCall call{.rows = Json::array(), .config = Json::object()};
  const Json* rows = f.list("infer_requests");
  if (!rows || rows->empty())
    f.missing("infer_requests", "a list of {\"messages\": [...]}");
  else
    call.rows = *rows;
  if (call.rows.size() > kMostRows)
    refuse("infer_requests", "'infer_requests' has ", call.rows.size(), " entries, at most ", kMostRows,
           " are possible");
  if (const Json* config = f.object("request_config")) call.config = *config;
  call.model = f.text("model");
  return call;
}

AdapterCall read_load_adapter_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  AdapterCall call{f.needed_text("lora_name"), f.needed_text("lora_path")};
  if (!schema && !plain_name(call.name))
    refuse("lora_name", "'lora_name' must be of letters, digits and . _ - : / @ +");
  return call;
}

AdapterCall read_unload_adapter_request(const Json& body, Json* schema) {
  return {.name = Fields(body, "", schema).needed_text("lora_name")};
}

int64_t read_weights_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  const auto version = f.whole("version", 1, INT64_MAX);
  if (!version) f.missing("version", "a whole number");
  return version.value_or(0);
}

}  // namespace apus
