// SPDX-License-Identifier: Apache-2.0
#include "algos/teacher_server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "hub/http.h"
#include "reward/reward.h"

namespace apus {
namespace {

constexpr int kTeacherAttempts = 3;
constexpr size_t kTeacherTextsAtOnce = 8, kTeacherBytesShown = 300;

// One place of prompt_logprobs: {"id": {"logprob": ...}}.
LikelyTokens likely_tokens(const Json& place, int64_t k) {
  require(place.is_object(), Fault::Io, "a place has no alternatives");
  std::vector<std::pair<float, int32_t>> all;
  for (const auto& [id, entry] : place.items()) {
    require(!id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos &&
                entry.is_object() && entry.contains("logprob") && entry["logprob"].is_number(),
            Fault::Io, "'", id.substr(0, 40), "' with ", entry.dump().substr(0, 80), " is no token's log-probability");
    all.emplace_back(-entry["logprob"].get<float>(), std::stoi(id));
  }
  require(std::ssize(all) >= k, Fault::Io, "a place has ", all.size(), " alternatives, and ", k, " were asked for");
  std::sort(all.begin(), all.end());
  LikelyTokens out;
  for (int64_t i = 0; i < k; ++i) {
    out.ids.push_back(all[static_cast<size_t>(i)].second);
    out.logprobs.push_back(-all[static_cast<size_t>(i)].first);
  }
  return out;
}

}  // namespace

TeacherServer::TeacherServer(std::string url, int64_t timeout) : url_(std::move(url)), timeout_(timeout) {
  while (!url_.empty() && url_.back() == '/') url_.pop_back();
  const Json models = parse_json(reply("/models", nullptr), "what " + url_ + "/models sent", Fault::Io);
  const Json::json_pointer first("/data/0/id");
  require(models.contains(first) && models[first].is_string(), Fault::Usage, url_,
          "/models names no model: is --teacher_model_server the address of an OpenAI API, up to /v1?");
  model_ = models[first].get<std::string>();
}

std::string TeacherServer::reply(const std::string& path, const std::string* body) const {
  std::string why;
  for (int attempt = 0; attempt < kTeacherAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::seconds(attempt));
    HttpRequest request{.url = url_ + path, .headers = {"Content-Type: application/json"}};
    if (body) request.post = *body;
    if (const char* key = std::getenv("APUS_API_KEY")) request.headers.push_back(str("Authorization: Bearer ", key));
    request.quiet_seconds = timeout_;
    const HttpReply reply = http_request(request);
    if (reply.status == 200) return reply.body;
    why = reply.status ? str("says ", reply.status, ": ", reply.body.substr(0, kTeacherBytesShown))
                       : str("cannot be reached: ", reply.error);
    if (reply.status != 0 && reply.status != 429 && reply.status < 500) break;
  }
  fail(Fault::Io, "the teacher ", url_, path, " ", why,
       " (--teacher_model_server). A server must allow as many alternatives as --gkd_logits_topk (apus deploy: "
       "--max_logprobs)");
}

std::vector<LikelyTokens> TeacherServer::asked(const Text& text, int64_t k) const {
  if (text.places.empty()) return {};
  // No server gives an answer of no token; its one is thrown away.
  const std::string body = json_text(
      Json{{"model", model_}, {"prompt", text.ids}, {"max_tokens", 1}, {"temperature", 1}, {"prompt_logprobs", k}});
  const Json said = parse_json(reply("/completions", &body), "what the teacher " + url_ + " sent", Fault::Io);
  const Json::json_pointer at("/choices/0/prompt_logprobs");
  require(said.contains(at) && said[at].is_array() && said[at].size() == text.ids.size(), Fault::Io, "the teacher ",
          url_, " sent no choices[0].prompt_logprobs for each of the ", text.ids.size(),
          " tokens: it must be a server that knows vLLM's prompt_logprobs, as apus deploy does");
  std::vector<LikelyTokens> out;
  try {
    for (const size_t place : text.places) out.push_back(likely_tokens(said[at][place], k));
  } catch (const Error& error) {
    fail(Fault::Io, "the teacher ", url_, ": ", error.what());
  }
  return out;
}

std::vector<std::vector<LikelyTokens>> TeacherServer::likeliest(const std::vector<Text>& texts, int64_t k) const {
  std::vector<std::vector<LikelyTokens>> out(texts.size());
  in_parallel(texts.size(), kTeacherTextsAtOnce, [&](size_t i) { out[i] = asked(texts[i], k); });
  return out;
}

}  // namespace apus
