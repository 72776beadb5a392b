// SPDX-License-Identifier: Apache-2.0
// What the server says of itself: its version, its endpoints, a page to chat on.
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "serve/api.h"
#include "serve/http_text.h"

namespace apus {

void Api::version(const Exchange& e) { send_json(*e.reply, {{"version", APUS_VERSION}}); }

namespace {

Json text_parameter(const char* name, const char* in) {
  return {{"name", name}, {"in", in}, {"required", std::string(in) == "path"}, {"schema", {{"type", "string"}}}};
}

}  // namespace

void Api::openapi(const Exchange& e) {
  Json paths = Json::object();
  for (const auto& [path, route] : routes())
    for (const auto& method : route.methods) {
      Json& entry = paths[path][lower(method)];
      entry = {{"summary", route.about},
               {"operationId", lower(method) + path},
               {"responses", {{"200", {{"description", "The answer"}}}, {"4XX", {{"description", "What is wrong"}}}}}};
      if (method == "POST" && route.request)
        entry["requestBody"] = {
            {"required", true},
            {"content", {{route.form ? "multipart/form-data" : "application/json", {{"schema", route.request()}}}}}};
      if (route.bytes)
        entry["requestBody"] = {{"required", true}, {"content", {{"application/octet-stream", Json::object()}}}};
      for (const char* name : route.query) entry["parameters"].push_back(text_parameter(name, "query"));
      if (path.ends_with("{id}")) entry["parameters"].push_back(text_parameter("id", "path"));
      if (!route.open) entry["security"] = Json::array({{{"key", Json::array()}}});
    }
  send_json(*e.reply, {{"openapi", "3.1.0"},
                       {"info", {{"title", "Apus"}, {"version", APUS_VERSION}}},
                       {"paths", paths},
                       {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}});
}

void Api::page(const Exchange& e) {
  e.reply->send({.body = std::string(asset("chat.html")), .content_type = "text/html; charset=utf-8"});
}

}  // namespace apus
