// SPDX-License-Identifier: Apache-2.0
// The handlers of what is answered by numbers: vectors, labels, rewards, scores of pairs, rankings.
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/embedding.h"
#include "serve/numbers_request.h"
#include "serve/openai_request.h"
#include "text/scores.h"
#include "text/word_places.h"

namespace apus {
namespace {

Json numbers_usage(int64_t tokens) {
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}, {"completion_tokens", 0}};
}

// What answers of these endpoints begin with.
Json head_of(const char* prefix, const std::string& model) {
  return {{"id", random_id(prefix, 32)}, {"object", "list"}, {"created", std::time(nullptr)}, {"model", model}};
}

// One text and what the classifier says of it.
Json labels_json(const std::vector<float>& logits, const ServedTask& task, size_t index) {
  const LabelledText said = labelled(logits, task.problem_type);
  const auto name = [&](const Json& label) { return task.labels.at(label.get<size_t>()); };
  Json out = {{"index", index}, {"label", nullptr}, {"probs", said.probabilities}, {"num_classes", logits.size()}};
  out["logits"] = logits;
  if (task.problem_type == "regression") {
    out["probs"] = logits;  // as they are
    if (logits.size() == 1) out["label"] = task.labels.at(0);
  } else if (said.label.is_array()) {
    out["label"] = Json::array();
    for (const Json& label : said.label) out["label"].push_back(name(label));
  } else {
    out["label"] = name(said.label);
  }
  return out;
}

// The words of each text that a model of words' labels is asked about; nothing of another model.
std::vector<std::vector<WordPlace>> words_of(const TextsCall& call, const std::vector<EngineRequest>& requests,
                                             const Service& service) {
  std::vector<std::vector<WordPlace>> out;
  if (service.spec().task.name != "token_cls") return out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool text = call.messages.is_null() ? call.inputs[i].is_text
                                              : call.messages.size() == 1 && call.messages[0]["content"].is_string();
    const std::string said = !text                     ? ""
                             : call.messages.is_null() ? call.inputs[i].text
                                                       : call.messages[0]["content"].get<std::string>();
    out.push_back(word_places(*service.spec().tokenizer, said, requests[i].prompt));
    if (out.back().empty())
      throw ApiError(400,
                     "Labels of words are asked of a text alone: a string in 'input', or one message. /pooling gives "
                     "the numbers of tokens.",
                     "input");
  }
  return out;
}

// One text and what the model says of its words.
Json words_json(const std::vector<WordPlace>& words, const std::vector<float>& logits, const ServedTask& task,
                size_t index) {
  Json out = {{"index", index}, {"words", Json::array()}, {"labels", Json::array()}, {"probs", Json::array()}};
  for (const LabelledWord& each : labelled_words(words, logits, std::ssize(task.labels))) {
    out["words"].push_back(each.word), out["probs"].push_back(each.probability);
    out["labels"].push_back(task.labels.at(static_cast<size_t>(each.label)));
  }
  return out;
}

// A row of numbers for each token.
Json rows_json(const std::vector<float>& all, size_t width, bool base64) {
  Json rows = Json::array();
  for (size_t at = 0; at + width <= all.size(); at += width)
    rows.push_back(
        numbers_json({all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(at + width)}, base64));
  return rows;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The score of each pair.
std::vector<double> pair_scores(TextNumbers numbers, const PairsCall& call, const ServedTask& task) {
  std::vector<double> scores;
  if (task.ranks()) {
    const bool activate = call.activation.value_or(task.activation);
    for (const auto& one : numbers.of_text) scores.push_back(activate ? sigmoid(one[0]) : one[0]);
    return scores;
  }
  for (auto& vector : numbers.of_text) at_length_one(vector);
  for (size_t i = 0; i < call.second.size(); ++i)
    scores.push_back(dot(numbers.of_text[call.first.size() == 1 ? 0 : i], numbers.of_text[call.first.size() + i]));
  return scores;
}

Json ranking_json(const std::vector<double>& scores, const PairsCall& call) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (call.top_n < std::ssize(order)) order.resize(static_cast<size_t>(call.top_n));
  Json results = Json::array();
  for (const size_t i : order) {
    Json one = {{"index", i}, {"relevance_score", scores[i]}};
    if (call.return_documents) one["document"] = {{"text", call.second[i]}};
    results.push_back(std::move(one));
  }
  return results;
}

}  // namespace

// Of a model that gives something else than what is asked for.
void Api::check_task(bool possible, const char* wanted) const {
  const ServedTask& task = service_.spec().task;
  if (possible) return;
  const char* const gives = task.talks()               ? "it chats: /v1/chat/completions"
                            : task.name == "embedding" ? "it gives vectors: /v1/embeddings, /v1/score, /v1/rerank"
                            : task.name == "seq_cls"   ? "it gives labels or rewards: /classify, /pooling"
                            : task.name == "token_cls" ? "it labels words: /classify, /pooling"
                            : task.name == "speech"    ? "it speaks: /v1/audio/speech"
                                                       : "it rates documents: /v1/rerank, /v1/score";
  throw ApiError(400, str("The model '", service_.spec().model_name, "' ", wanted, "; ", gives, "."), "model",
                 "wrong_task");
}

void Api::start_numbers(const Exchange& e, std::vector<EngineRequest> requests, std::function<Json(TextNumbers)> form) {
  e.notes->model = service_.spec().model_name;
  e.notes->finish = "numbers";
  for (const EngineRequest& request : requests) e.notes->usage.prompt += std::ssize(request.prompt);
  const auto job = std::make_shared<NumbersJob>(service_.spec().engine, std::move(form), e.serial, to_reply(e));
  e.reply->on_gone([weak = std::weak_ptr(job)] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  job->start(std::move(requests));
}

void Api::embeddings(const Exchange& e) {
  check_task(service_.spec().task.gives_vectors(), "gives no vectors");
  const EmbeddingCall call = read_embedding_request(e.body());
  note_ignored(e, call.ignored);
  const EmbeddingForm form{.model = service_.named(call.model), .base64 = call.base64, .dimensions = call.dimensions};
  start_numbers(e, service_.prepare(call), [form](TextNumbers numbers) -> Json {
    Json data = Json::array();
    for (auto& vector : numbers.of_text) data.push_back(embedding_json(std::move(vector), form, data.size()));
    return {{"object", "list"},
            {"data", std::move(data)},
            {"model", form.model},
            {"usage", {{"prompt_tokens", numbers.tokens}, {"total_tokens", numbers.tokens}}}};
  });
}

void Api::classify(const Exchange& e) {
  const ServedTask& task = service_.spec().task;
  check_task(task.name == "seq_cls" || task.name == "token_cls", "gives no labels");
  const TextsCall call = read_texts_request(e.body());
  note_ignored(e, call.ignored);
  const std::vector<EngineRequest> requests = service_.prepare(call);
  const std::vector<std::vector<WordPlace>> words = words_of(call, requests, service_);
  start_numbers(e, requests, [&task, words, model = service_.named(call.model)](const TextNumbers& numbers) {
    Json out = head_of("classify-", model), data = Json::array();
    for (const auto& logits : numbers.of_text)
      data.push_back(words.empty() ? labels_json(logits, task, data.size())
                                   : words_json(words[data.size()], logits, task, data.size()));
    out["data"] = std::move(data), out["usage"] = numbers_usage(numbers.tokens);
    return out;
  });
}

// The numbers as the head gives them: rewards. Of a model of vectors those.
void Api::pooling(const Exchange& e) {
  const ServedTask& task = service_.spec().task;
  check_task(!task.talks(), "gives words");
  const TextsCall call = read_texts_request(e.body());
  note_ignored(e, call.ignored);
  const bool vectors = task.name == "embedding";
  const size_t labels = task.name == "token_cls" ? task.labels.size() : 0;
  start_numbers(
      e, service_.prepare(call), [vectors, labels, call, model = service_.named(call.model)](TextNumbers numbers) {
        Json out = head_of("pool-", model), data = Json::array();
        for (auto& one : numbers.of_text) {
          if (vectors) at_length_one(one);
          data.push_back({{"index", data.size()},
                          {"object", "pooling"},
                          {"data", labels > 0 ? rows_json(one, labels, call.base64) : numbers_json(one, call.base64)}});
        }
        out["data"] = std::move(data), out["usage"] = numbers_usage(numbers.tokens);
        return out;
      });
}

void Api::score(const Exchange& e) {
  const ServedTask& task = service_.spec().task;
  check_task(task.ranks() || task.name == "embedding", "compares no texts");
  const PairsCall call = read_score_request(e.body());
  note_ignored(e, call.ignored);
  start_numbers(e, service_.prepare(call), [&task, call, model = service_.named(call.model)](TextNumbers numbers) {
    Json out = head_of("score-", model), data = Json::array();
    out["usage"] = numbers_usage(numbers.tokens);
    for (const double score : pair_scores(std::move(numbers), call, task))
      data.push_back({{"index", data.size()}, {"object", "score"}, {"score", score}});
    out["data"] = std::move(data);
    return out;
  });
}

void Api::rerank(const Exchange& e) {
  const ServedTask& task = service_.spec().task;
  check_task(task.ranks() || task.name == "embedding", "rates no documents");
  const PairsCall call = read_rerank_request(e.body());
  note_ignored(e, call.ignored);
  start_numbers(e, service_.prepare(call),
                [&task, call, model = service_.named(call.model)](TextNumbers numbers) -> Json {
                  const int64_t tokens = numbers.tokens;
                  return {{"id", random_id("rerank-", 32)},
                          {"model", model},
                          {"results", ranking_json(pair_scores(std::move(numbers), call, task), call)},
                          {"usage", numbers_usage(tokens)}};
                });
}

}  // namespace apus
