// SPDX-License-Identifier: Apache-2.0
// apus infer with a model that gives no words: labels, vectors and scores of rows, many texts in one forward pass.
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "algos/rank_losses.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "checkpoint/vector_reader.h"
#include "data/encode/row_media.h"
#include "data/results/row_book.h"
#include "data/rows/documents.h"
#include "data/rows/media_refs.h"
#include "models/pooling.h"
#include "models/spec/score_head.h"
#include "run/infer.h"
#include "text/scores.h"
#include "text/word_places.h"

namespace apus {
namespace {

// A text as ids, with the media that some of them stand for.
struct ReadText {
  std::vector<int32_t> ids;
  int32_t second = 0;  // MarkedText::second
  std::vector<MediaItem> media;
};

// A row's conversations.
class TextReader {
 public:
  // media: null where the model reads text only
  TextReader(const InferOptions& o, const Chat& chat, std::shared_ptr<const MediaReader> media)
      : o_(o), chat_(chat), media_(std::move(media)) {}

  std::vector<ReadText> operator()(const Question& question) const {
    const Row row{question.row, question.origin};
    const Json query = query_of(row), &messages = query["messages"];
    if (o_.model.task_type != "reranker" && o_.model.task_type != "generative_reranker")
      return {text_of(query, row.origin)};
    const std::vector<Json> documents = all_documents(question);
    std::vector<ReadText> out;
    if (documents.empty()) {  // the last message is the document
      const auto last = std::prev(messages.end());
      require(last != messages.begin() && (*last)["role"] == "assistant", Fault::Data,
              "a reranker reads a query and a document: a user's message and an assistant's, or the columns "
              "positive_messages and negative_messages");
      Json asked = query;
      asked["messages"] = Json(messages.begin(), last);
      out.push_back(pair(asked, {{"messages", Json::array({*last})}}, row.origin));
    }
    for (const Json& document : documents) out.push_back(pair(query, document, row.origin));
    return out;
  }

  static std::vector<Json> all_documents(const Question& question) {
    const Row row{question.row, question.origin};
    std::vector<Json> all = documents_of(row, "positive");
    for (Json& wrong : documents_of(row, "negative")) all.push_back(std::move(wrong));
    return all;
  }

 private:
  ReadText pair(const Json& query, const Json& document, const Origin& origin) const {
    if (o_.model.task_type == "reranker") return text_of(query_and_document(query, document), origin);
    const std::string own = system_of(document);
    const Json messages = rerank_messages(text_without_system(query), text_without_system(document),
                                          own.empty() ? system_of(query) : own, o_.task.words);
    return text_of(with_media_of(messages, query, document), origin, no_thoughts());
  }
  ReadText text_of(const Json& talk, const Origin& origin, const Json& words = nullptr) const {
    Json messages = talk["messages"];
    const auto text = [&] {
      return chat_.text_ids({.messages = &messages,
                             .kwargs = words.is_null() ? nullptr : &words,
                             .whole = messages.back()["role"] == "assistant",
                             .second = talk.value(kSecondMessage, size_t{0})});
    };
    const bool seen = std::any_of(kMediaKinds.begin(), kMediaKinds.end(), [&](const MediaKind& kind) {
      return talk.contains(kind.column) && !talk[kind.column].empty();
    });
    if (!seen) {
      MarkedText read = text();
      return {std::move(read.ids), read.second, {}};
    }
    require(media_ != nullptr, Fault::Data, "the row has images, videos or sounds, and this model reads text only");
    const auto remark = [](const std::string& text) { log_warning(text); };
    const Row own{talk, origin};
    messages = with_media_tags(own, messages, remark);
    RowMedia prepared = media_->read(own, messages, remark);
    Sample sample;
    sample.ids = text().ids, sample.trained.assign(sample.ids.size(), 0);
    place_media(sample, std::move(prepared), origin);
    return {std::move(sample.ids), 0, std::move(sample.media)};
  }
  const InferOptions& o_;
  const Chat& chat_;
  const std::shared_ptr<const MediaReader> media_;
};

class NumbersRun {
 public:
  NumbersRun(const InferOptions& o, const std::string& path);
  int run();

 private:
  struct Flight {
    int64_t row;
    Question question;
    std::vector<ReadText> texts;
  };
  bool read_one();
  void compute();
  std::vector<std::vector<float>> numbers_of(const at::Tensor& hidden_TD, const at::Tensor& id_T, const Step& s) const;
  RowBook::Reply reply_of(const Flight& flight, const std::vector<std::vector<float>>& numbers);
  RowBook::Reply label_reply(const Question& question, const std::vector<float>& logits);
  RowBook::Reply words_reply(const Flight& flight, const std::vector<float>& logits);
  void report() const;
  RowBook::Spec book_spec(const std::string& path) const;

  const InferOptions& o_;
  const LoadedModel loaded_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Chat chat_;
  const TextReader read_;
  const ScoreHead head_;
  const VectorReader vectors_;  // of --task_type embedding
  int64_t yes_ = -1, no_ = -1;
  RowBook book_;
  std::vector<Flight> flights_;
  int64_t tokens_ = 0;  // of the flights
  double squares_ = 0, apart_ = 0, reciprocal_ = 0, ndcg_ = 0;
  int64_t compared_ = 0, lists_ = 0, words_ = 0, right_ = 0;
};

NumbersRun::NumbersRun(const InferOptions& o, const std::string& path)
    : o_(o),
      loaded_(load_for_inference(o.model, o.adapters.first(), o.placement, nullptr, o.quantise)),
      tokenizer_(Tokenizer::load(o.model.model)),
      chat_(o.model.model, tokenizer_, o.prompt),
      read_(o, chat_, open_media_reader(o.model.model, *tokenizer_, o.prompt.media)),
      head_(score_head_of(loaded_.config).value_or(ScoreHead{})),
      vectors_(o.model.task_type == "embedding"
                   ? VectorReader(o.model.model, o.task.vector_form(o.model.model), loaded_.device.device)
                   : VectorReader()),
      book_(book_spec(path)) {
  loaded_.require_no_prompt();
  if (o.model.task_type == "generative_reranker")
    yes_ = token_of_word(*tokenizer_, o.task.words.yes), no_ = token_of_word(*tokenizer_, o.task.words.no);
}

RowBook::Spec NumbersRun::book_spec(const std::string& path) const {
  RowBook::Spec spec = row_book_spec(o_, path);
  const bool labels = o_.model.task_type == "seq_cls" && head_.problem_type != "regression";
  require(!spec.metric || (labels && *spec.metric == "acc"), Fault::Usage, "--metric ", spec.metric.value_or(""),
          " is of models that give words, acc of those that give labels too; what can be said of others is said at the "
          "end");
  return spec;
}

// The next row, if there is one.
bool NumbersRun::read_one() {
  auto question = book_.next();
  if (!question) return false;
  const int64_t row = book_.row(), longest = o_.model.max_model_len.value_or(loaded_.max_positions);
  const Origin origin = question->origin;
  try {
    Flight flight{row, std::move(*question), {}};
    flight.texts = read_(flight.question);
    int64_t tokens = 0;
    for (const auto& text : flight.texts) {
      const auto length = std::ssize(text.ids);
      require(length > 0, Fault::Data, "the row has no tokens");
      require(length <= longest, Fault::Data, "a text of ", length, " tokens is longer than the model's context of ",
              longest, "; --truncation_strategy left with --max_length cuts it");
      tokens += length;
    }
    tokens_ += tokens;
    flights_.push_back(std::move(flight));
  } catch (const Error& e) {
    if (e.at.fault != Fault::Data && e.at.fault != Fault::Usage) throw;
    book_.refuse(row, origin, e.what());
  }
  return true;
}

std::vector<std::vector<float>> NumbersRun::numbers_of(const at::Tensor& hidden_TD, const at::Tensor& id_T,
                                                       const Step& s) const {
  const Model& model = *loaded_.model;
  const at::Tensor out = o_.model.task_type == "embedding"   ? vectors_(hidden_TD, s)
                         : o_.model.task_type == "token_cls" ? scores_of_tokens(model, hidden_TD, s)
                         : yes_ >= 0 ? token_lead(model, last_states(hidden_TD, s), s, yes_, no_).unsqueeze(1)
                                     : text_scores(model, id_T, hidden_TD, s);
  return numbers_of_texts(out, s);
}

void NumbersRun::compute() {
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  std::vector<int32_t> second;
  Inputs::Media media;
  bool seen = false;
  for (const Flight& flight : flights_)
    for (const auto& text : flight.texts) {
      lengths.push_back(static_cast<int32_t>(text.ids.size()));
      ids.insert(ids.end(), text.ids.begin(), text.ids.end());
      second.push_back(text.second);
      media.push_back(text.media);
      seen = seen || !text.media.empty();
    }
  if (lengths.empty()) return;
  const at::Device device = loaded_.device.device;
  Step step = packed_step(lengths, device);
  const at::Tensor id_T = at::tensor(ids, at::kLong).to(device);
  Inputs inputs = seen ? Inputs(id_T, std::move(media)) : Inputs(id_T);
  inputs.second = std::move(second);
  const auto numbers = numbers_of(loaded_.model->forward(inputs, step), id_T, step);
  size_t next = 0;
  for (const Flight& flight : flights_) {
    const auto first = numbers.begin() + static_cast<long>(next);
    next += flight.texts.size();
    RowBook::Reply reply = reply_of(flight, {first, first + static_cast<long>(flight.texts.size())});
    for (const auto& text : flight.texts) reply.prompt_tokens += std::ssize(text.ids);
    book_.answer(flight.row, flight.question, std::move(reply));
  }
  flights_.clear(), tokens_ = 0;
}

RowBook::Reply NumbersRun::reply_of(const Flight& flight, const std::vector<std::vector<float>>& numbers) {
  if (o_.model.task_type == "seq_cls") return label_reply(flight.question, numbers[0]);
  if (o_.model.task_type == "token_cls") return words_reply(flight, numbers[0]);
  if (o_.model.task_type == "embedding") return {.response = numbers[0], .logprobs = nullptr};
  std::vector<float> scores;
  for (const auto& one : numbers) scores.push_back(one[0]);
  const Row row{flight.question.row, flight.question.origin};
  const size_t right = documents_of(row, "positive").size();
  if (right == 1 && scores.size() > 1) {
    const RankQuality quality = rank_quality(scores);
    reciprocal_ += quality.reciprocal_rank, ndcg_ += quality.ndcg, ++lists_;
  }
  if (o_.task.reranker_use_activation)
    for (float& score : scores) score = static_cast<float>(sigmoid(score));
  const bool list = TextReader::all_documents(flight.question).size() > 0;
  return {.response = list ? Json(scores) : Json(scores[0]), .logprobs = nullptr};
}

RowBook::Reply NumbersRun::label_reply(const Question& question, const std::vector<float>& logits) {
  const LabelledText said = labelled(logits, head_.problem_type);
  RowBook::Reply reply{.response = said.label, .logprobs = nullptr, .more = {{"logits", logits}}};
  if (!said.probabilities.empty()) {
    reply.more["probabilities"] = said.probabilities;
    if (o_.answers.logprobs)
      reply.logprobs = label_logprobs(logits, said, head_.problem_type, o_.answers.top_logprobs.value_or(0));
    return reply;
  }
  const Json wanted = question.label ? Json::parse(*question.label, nullptr, false) : Json();
  const Json list = wanted.is_array() ? wanted : Json::array({wanted});
  for (size_t i = 0; i < logits.size() && list.size() == logits.size() && list[i].is_number(); ++i) {
    const double off = logits[i] - list[i].get<double>();
    squares_ += off * off, apart_ += std::fabs(off), ++compared_;
  }
  return reply;
}

// Words that a row has no label for, or -100, are not counted.
RowBook::Reply NumbersRun::words_reply(const Flight& flight, const std::vector<float>& logits) {
  const Json messages = query_of({flight.question.row, flight.question.origin})["messages"];
  const std::vector<LabelledWord> words =
      labelled_words(word_places(*tokenizer_, messages.back()["content"].get<std::string>(), flight.texts[0].ids),
                     logits, head_.labels);
  require(!words.empty() && messages.size() == 1, Fault::Data,
          "one text whose words are labelled is wanted, alone and uncut");
  const Json wanted = flight.question.label ? Json::parse(*flight.question.label, nullptr, false) : Json();
  RowBook::Reply reply{.response = Json::array(), .logprobs = nullptr};
  Json names = Json::array(), chances = Json::array(), texts = Json::array();
  for (size_t i = 0; i < words.size(); ++i) {
    reply.response.push_back(words[i].label), chances.push_back(words[i].probability);
    names.push_back(label_name(loaded_.config, words[i].label)), texts.push_back(words[i].word);
    if (wanted.is_array() && wanted.size() == words.size() && wanted[i].is_number_integer() && wanted[i] >= 0)
      right_ += wanted[i] == words[i].label, ++words_;
  }
  reply.more = {{"words", texts}, {"names", names}, {"probabilities", chances}};
  return reply;
}

void NumbersRun::report() const {
  Json metric = Json::object();
  if (words_ > 0) metric = {{"acc", static_cast<double>(right_) / static_cast<double>(words_)}, {"words", words_}};
  if (compared_ > 0)
    metric = {{"mse", squares_ / static_cast<double>(compared_)}, {"mae", apart_ / static_cast<double>(compared_)}};
  if (lists_ > 0)
    metric = {{"mrr", reciprocal_ / static_cast<double>(lists_)}, {"ndcg", ndcg_ / static_cast<double>(lists_)}};
  if (!metric.empty()) std::fprintf(stdout, "%s\n", json_text(metric).c_str());
}

int NumbersRun::run() {
  const c10::InferenceMode inference;
  const StopFlag stop;
  book_.begin();
  const Stopwatch watch;
  Progress progress("infer", book_.total(), {.unit = "row", .skipped = book_.earlier()});
  progress.set(book_.earlier());
  for (bool more = true; more && !stop.raised();) {
    while (more && tokens_ < o_.engine.spec.max_step_tokens && !stop.raised()) more = read_one();
    compute();
    progress.set(book_.done());
  }
  if (stop.raised()) {
    book_.stopped();
    stop.throw_if_raised();
  }
  progress.finish();
  book_.finish(watch.seconds());
  report();
  return 0;
}

}  // namespace

int infer_numbers(const InferOptions& options, const std::string& result_path) {
  return NumbersRun(options, result_path).run();
}

}  // namespace apus
