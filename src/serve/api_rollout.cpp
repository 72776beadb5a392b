// SPDX-License-Identifier: Apache-2.0
// What a trainer asks of `apus rollout`: answers to token ids, conversations with an environment, and new weights.
// Paths are those of ms-swift's rollout server; weights come as files, and no communicator is made.
#include <atomic>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "engine/answer/answer_wire.h"
#include "environment/episodes.h"
#include "environment/plugin.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/own_requests.h"
#include "serve/rollout_door.h"

namespace apus {
namespace {

// The last request of an order to finish sends the reply.
struct Ordered {
  std::vector<FinishedAnswer> answers;
  std::atomic<size_t> left;
  std::shared_ptr<Responder> reply;
  int64_t version;
  explicit Ordered(size_t count) : answers(count), left(count) {}

  void take(size_t i, const EngineEvent& event) {
    FinishedAnswer& answer = answers[i];
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    answer.experts.insert(answer.experts.end(), event.experts.begin(), event.experts.end());
    if (event.finish == Finish::None) return;
    answer.finish = event.finish, answer.error = event.error;
    for (TokenOut& token : answer.tokens) token.weights = version;
    if (--left == 0) send_json(*reply, to_wire(answers));
  }
};

std::string from_query(const HttpCall& call, const std::string& name) {
  for (size_t begin = 0; begin <= call.query.size();) {
    const size_t end = std::min(call.query.find('&', begin), call.query.size());
    const std::string part = call.query.substr(begin, end - begin);
    if (part.rfind(name + "=", 0) == 0) return part.substr(name.size() + 1);
    begin = end + 1;
  }
  refuse(name, "'", name, "' is missing in the address");
}

int64_t whole_from_query(const HttpCall& call, const std::string& name) {
  const std::string text = from_query(call, name);
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    refuse(name, "'", name, "' must be a whole number");
  return std::stoll(text);
}

}  // namespace

RolloutDoor& Api::door() const {
  if (!service_.spec().door) throw ApiError(404, "This is for trainers: `apus rollout` serves it, `apus deploy` not.");
  return *service_.spec().door;
}

void Api::world_size(const Exchange& e) {
  door();
  send_json(*e.reply, {{"world_size", 1}});
}

void Api::state_keys(const Exchange& e) { send_json(*e.reply, {{"state_keys", door().spec().parameters}}); }

void Api::engine_type(const Exchange& e) {
  const bool lora = !door().adapter().empty();
  send_json(*e.reply, {{"engine_type", "apus"},
                       {"version", door().version()},
                       {"enable_lora", lora},
                       {"use_gym_env", door().spec().environment.several_turns()}});
}

void Api::communicator(const Exchange& e) {
  door();
  const Json body = e.body();
  throw ApiError(400,
                 "Weights come over HTTP here, as files: POST /update_flattened_params/?version=V&file=NAME&begin=N "
                 "with their bytes, then /process_weights_after_loading/ {\"version\": V}. apus rlhf does that.");
}

void Api::nothing_to_do(const Exchange& e) {
  door();
  send_json(*e.reply, {{"message", "there is nothing to do"}});
}

void Api::take_weights(const Exchange& e) {
  door().receive(whole_from_query(*e.call, "version"), from_query(*e.call, "file"), whole_from_query(*e.call, "begin"),
                 e.call->body);
  send_json(*e.reply, {{"received", e.call->body.size()}});
}

void Api::finish_weights(const Exchange& e) {
  door().finish(read_weights_request(e.body()));
  send_json(*e.reply, {{"version", door().version()}});
}

void Api::generate_ids(const Exchange& e) {
  RolloutDoor& trainer = door();
  AnswerOrder order;
  try {
    order = order_of_wire(e.body());
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  if (order.version != trainer.version())
    throw ApiError(409, str("Version ", order.version, " of the weights is asked for, and ", trainer.version(),
                            " is here: send it first."));
  if (order.prompts.empty()) return send_json(*e.reply, to_wire(std::vector<FinishedAnswer>()));
  for (const auto& prompt : order.prompts) service_.check_ids(prompt, "prompts");
  const auto all = std::make_shared<Ordered>(order.prompts.size());
  all->reply = e.reply, all->version = order.version;
  std::vector<EngineRequest> requests(order.prompts.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineRequest& request = requests[i];
    request.prompt = std::move(order.prompts[i]), request.sampling = order.sampling;
    request.sampling.seed = order.seeds[i], request.adapter = trainer.adapter();
    request.tells_experts = order.tells_experts;
    request.sink = [all, i](const EngineEvent& event) { all->take(i, event); };
  }
  std::vector<int64_t> started;
  try {
    started = service_.spec().engine->submit_all(std::move(requests));
  } catch (const Error& error) {
    for (size_t i = 0; i < order.prompts.size(); ++i)
      all->take(i, {.request = 0, .tokens = {}, .finish = Finish::Failed, .error = error.what()});
  }
  e.reply->on_gone([engine = service_.spec().engine, started] {
    for (const int64_t request : started) engine->cancel(request);
  });
}

// Conversations with the server's environment, as ms-swift's rollout gives them.
void Api::play_rows(const Exchange& e, const Json& rows, const Json& config) {
  const RolloutDoor& trainer = door();
  const EnvironmentOptions& o = trainer.spec().environment;
  const Speech speech{{std::shared_ptr<void>(), service_.spec().chat}, service_.spec().stop_ids};  // not owned
  const auto environment = make_environment(o, plugins_of(o, Json::object(), service_.spec().tokenizer), speech);
  std::vector<EpisodeStart> starts;
  std::vector<Heard> prompts;
  std::vector<Json> asked;
  Sampling sampling;
  for (size_t i = 0; i < rows.size(); ++i) {
    Json request = config;
    request.update(rows[i]);
    if (Json tools = environment->tools(); !tools.is_null() && !request.contains("tools")) request["tools"] = tools;
    auto prepared = prepare_row(e, request);
    prompts.push_back({prepared.stream.requests.at(0).prompt, prepared.stream.requests.at(0).media});
    if (i == 0) sampling = prepared.stream.requests.at(0).sampling;
    Json row = rows[i].value("data_dict", Json::object());
    row.update(rows[i]);
    asked.push_back(std::move(row));
  }
  for (size_t i = 0; i < rows.size(); ++i)
    starts.push_back({.episode = static_cast<int64_t>(i), .row = &asked[i], .seed = sampling.seed});
  const Chat& chat = *service_.spec().chat;
  const auto ids_of = [&](size_t i, const Json& messages) {
    const Json tools = asked[i].contains("tools") ? asked[i]["tools"] : environment->tools();
    return chat.prompt({.messages = &messages, .tools = tools.is_null() ? nullptr : &tools});
  };
  const auto words_of = [](const EpisodeReply& reply) -> const Json& {
    require(reply.images.empty(), Fault::Data, "an environment of a server talks in text alone, and it gave images");
    return reply.messages;
  };
  const auto question = [&](size_t i, const EpisodeReply& reply) { return Heard{ids_of(i, words_of(reply))}; };
  const auto between = [&](size_t i, const EpisodeReply& reply) -> Heard {
    const Json& messages = words_of(reply);
    if (messages.empty()) return {};
    Json whole = user_says("a");
    const std::vector<int32_t> before = ids_of(i, whole);
    whole.push_back({{"role", "assistant"}, {"content", "b"}});
    for (const Json& message : messages) whole.push_back(message);
    return {behind_turn(before, ids_of(i, whole), service_.spec().stop_ids)};
  };
  AnswersUnderWay under_way(*service_.spec().engine);
  const auto model = [&](std::vector<TurnAsked> turns, const TurnSaid& said) {
    std::vector<EngineRequest> requests;
    std::vector<size_t> episode;
    for (TurnAsked& turn : turns) {
      EngineRequest& request = requests.emplace_back();
      episode.push_back(turn.episode);
      request.prompt = std::move(turn.text.ids), request.media = std::move(turn.text.media);
      request.sampling = turn.sampling, request.adapter = trainer.adapter();
      request.sampling.top_logprobs = std::max<int64_t>(0, turn.sampling.top_logprobs);
    }
    under_way.ask(std::move(requests),
                  [said, episode](size_t i, const FinishedAnswer& answer) { said(episode[i], answer); });
  };
  const auto all =
      play(*environment, starts, prompts, sampling,
           {.max_turns = o.max_turns,
            .max_new_tokens = sampling.max_new_tokens,
            .total = o.total_length(),
            .longest = service_.spec().engine->max_model_len()},
           {.model = model, .question = question, .between = between, .tokenizer = *service_.spec().tokenizer});
  Json out = Json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const Trajectory& t = all[i];
    Json messages = asked[i].value("messages", Json::array());
    for (const Json& message : t.messages) messages.push_back(message);
    const Json choice = {{"index", 0},
                         {"message", {{"role", "assistant"}, {"content", t.text}}},
                         {"finish_reason", t.cut ? "length" : "stop"}};
    Json beside = Json::array();
    for (const Conversation& other : t.beside)
      beside.push_back({{"prompt_token_ids", other.prompt},
                        {"response_token_ids", other.ids},
                        {"response_loss_mask", other.own},
                        {"rollout_logprobs", other.logprobs}});
    out.push_back({{"response", {{"object", "chat.completion"}, {"choices", Json::array({choice})}}},
                   {"messages", std::move(messages)},
                   {"prompt_token_ids", t.prompt},
                   {"response_token_ids", t.ids},
                   {"response_loss_mask", t.own},
                   {"rollout_logprobs", t.logprobs},
                   {"other_conversations", beside},
                   {"rollout_infos",
                    {{"num_turns", t.turns_taken()},
                     {"gym_reward", t.failed ? Json() : Json(t.reward())},
                     {"version", trainer.version()}}}});
  }
  send_json(*e.reply, out);
}

}  // namespace apus
