// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/answer_wire.h"

#include <cmath>

#include "base/base64.h"
#include "base/error.h"

namespace apus {
namespace {

constexpr size_t kMostPrompts = 1 << 16, kMostTokens = 1 << 24;

const Json& member(const Json& of, const char* name, bool right, const char* wanted) {
  require(right, Fault::Data, "'", name, "' must be ", wanted, ", and is ",
          of.contains(name) ? of[name].dump().substr(0, 100) : "missing");
  return of[name];
}

const Json& list_in(const Json& of, const char* name) {
  return member(of, name, of.is_object() && of.contains(name) && of[name].is_array(), "a list");
}

int64_t whole_in(const Json& of, const char* name) {
  return member(of, name, of.is_object() && of.contains(name) && of[name].is_number_integer(), "a whole number")
      .get<int64_t>();
}

double number_in(const Json& of, const char* name) {
  return member(of, name, of.is_object() && of.contains(name) && of[name].is_number(), "a number").get<double>();
}

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> out;
  for (const Json& id : list) {
    require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < INT32_MAX, Fault::Data, id.dump(),
            " is no token id");
    out.push_back(id.get<int32_t>());
  }
  return out;
}

}  // namespace

std::string experts_as_text(const std::vector<int16_t>& experts) {
  std::string bytes;
  for (const int16_t expert : experts) {
    const auto bits = static_cast<uint16_t>(expert);
    bytes += static_cast<char>(bits & 0xff), bytes += static_cast<char>(bits >> 8);
  }
  return base64(bytes);
}

std::vector<int16_t> experts_of_text(const std::string& text) {
  const std::string bytes = from_base64(text);
  require(bytes.size() % 2 == 0, Fault::Data, "'routed_experts' are no numbers of 16 bits");
  std::vector<int16_t> out;
  for (size_t i = 0; i < bytes.size(); i += 2)
    out.push_back(static_cast<int16_t>(static_cast<uint8_t>(bytes[i]) | static_cast<uint8_t>(bytes[i + 1]) << 8));
  return out;
}

Json to_wire(const AnswerOrder& order) {
  const Sampling& s = order.sampling;
  Json sampling = {{"max_new_tokens", s.max_new_tokens},
                   {"stop_ids", s.stop_ids},
                   {"ignore_eos", s.ignore_eos},
                   {"top_logprobs", s.top_logprobs},
                   {"tempered_logprobs", s.tempered_logprobs}};
  each_sampling_field([&](const auto& field) { sampling[field.name] = s.*(field.value); });
  Json seeds = Json::array();  // as text: not everybody's numbers have 64 bits
  for (const uint64_t seed : order.seeds) seeds.push_back(std::to_string(seed));
  return {{"version", order.version},
          {"sampling", std::move(sampling)},
          {"seeds", std::move(seeds)},
          {"routed_experts", order.tells_experts},
          {"prompts", order.prompts}};
}

AnswerOrder order_of_wire(const Json& json) {
  AnswerOrder order;
  order.version = whole_in(json, "version");
  order.tells_experts = json.value("routed_experts", false);
  const Json& prompts = list_in(json, "prompts");
  require(prompts.size() <= kMostPrompts, Fault::Data, "'prompts' has ", prompts.size(), " entries, at most ",
          kMostPrompts, " are possible");
  size_t tokens = 0;
  for (const Json& prompt : prompts) {
    require(prompt.is_array() && !prompt.empty(), Fault::Data, "'prompts' must hold lists of token ids");
    require((tokens += prompt.size()) <= kMostTokens, Fault::Data, "'prompts' has more than ", kMostTokens, " tokens");
    order.prompts.push_back(ids_of(prompt));
  }
  require(json.contains("sampling") && json["sampling"].is_object(), Fault::Data, "'sampling' must be an object");
  const Json& from = json["sampling"];
  Sampling& s = order.sampling;
  const Json& seeds = list_in(json, "seeds");
  require(seeds.size() == prompts.size(), Fault::Data, "'seeds' must hold one for each of 'prompts'");
  for (const Json& seed : seeds) {
    require(seed.is_string(), Fault::Data, "'seeds' must be texts of digits");
    order.seeds.push_back(std::strtoull(seed.get_ref<const std::string&>().c_str(), nullptr, 10));
  }
  s.max_new_tokens = std::max<int64_t>(1, whole_in(from, "max_new_tokens"));
  s.stop_ids = ids_of(list_in(from, "stop_ids"));
  s.ignore_eos = from.value("ignore_eos", false);
  s.top_logprobs = std::clamp<int64_t>(whole_in(from, "top_logprobs"), -1, 100);
  s.tempered_logprobs = from.value("tempered_logprobs", false);
  each_sampling_field([&](const auto& field) {
    const double value = number_in(from, field.name);
    require(value >= static_cast<double>(field.least) && value <= static_cast<double>(field.most), Fault::Data, "'",
            field.name, "' is ", value, ", and not from ", field.least, " to ", field.most);
    s.*(field.value) = static_cast<std::decay_t<decltype(s.*(field.value))>>(value);
  });
  return order;
}

Json to_wire(const std::vector<FinishedAnswer>& answers) {
  Json out = Json::array();
  for (const FinishedAnswer& answer : answers) {
    Json logprobs = Json::array(), versions = Json::array();
    for (const TokenOut& token : answer.tokens) logprobs.push_back(token.logprob), versions.push_back(token.weights);
    const char* finish = answer.finish == Finish::Stop ? "stop" : answer.finish == Finish::Length ? "length" : "failed";
    out.push_back({{"token_ids", answer.ids()},
                   {"logprobs", std::move(logprobs)},
                   {"versions", std::move(versions)},
                   {"finish_reason", finish}});
    if (!answer.experts.empty()) out.back()["routed_experts"] = experts_as_text(answer.experts);
    if (!answer.error.empty()) out.back()["error"] = answer.error;
  }
  return {{"answers", std::move(out)}};
}

std::vector<FinishedAnswer> answers_of_wire(const Json& json) {
  std::vector<FinishedAnswer> out;
  for (const Json& from : list_in(json, "answers")) {
    FinishedAnswer& answer = out.emplace_back();
    const std::vector<int32_t> ids = ids_of(list_in(from, "token_ids"));
    const Json &logprobs = list_in(from, "logprobs"), &versions = list_in(from, "versions");
    require(logprobs.size() == ids.size() && versions.size() == ids.size(), Fault::Data, "an answer of ", ids.size(),
            " tokens has ", logprobs.size(), " 'logprobs' and ", versions.size(), " 'versions'");
    for (size_t i = 0; i < ids.size(); ++i) {
      require(logprobs[i].is_number() && versions[i].is_number_integer(), Fault::Data,
              "'logprobs' must be numbers, and 'versions' whole ones");
      answer.tokens.push_back(
          {.id = ids[i], .logprob = logprobs[i].get<float>(), .top = {}, .weights = versions[i].get<int64_t>()});
    }
    const std::string finish = from.value("finish_reason", "");
    answer.finish = finish == "stop" ? Finish::Stop : finish == "length" ? Finish::Length : Finish::Failed;
    answer.experts = experts_of_text(from.value("routed_experts", ""));
    answer.error = from.value("error", "");
  }
  return out;
}

}  // namespace apus
