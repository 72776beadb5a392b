// SPDX-License-Identifier: Apache-2.0
#include "algos/gkd.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>

#include "algos/pairs.h"
#include "algos/row_sharers.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/random.h"
#include "data/encode/id_rows.h"
#include "models/layer_runner.h"
#include "ops/divergence.h"
#include "train/label_logprobs.h"

namespace apus {
namespace {

constexpr const char* kTold = "told";  // of each sequence: the number of the batch that the teacher reads instead
// What a server says of each token with a label: ids and log-probabilities of the likeliest ones, [N, k].
constexpr const char *kLikelyIds = "likely_ids", *kLikelyLogprobs = "likely_logprobs";
constexpr const char* kServer = "server";  // of each sequence, of several: which teaches it
constexpr int64_t kServerSeconds = 600;
constexpr const char* kRolled = "rolled";  // of each sequence: 1 where its answer was rolled out

Json messages_for_teacher(const Row& row) {
  Json messages = row.value["messages"];
  for (auto message = messages.rbegin(); message != messages.rend(); ++message)
    if ((*message)["role"] == "user") {
      (*message)["content"] = row.value["teacher_prompt"];
      return messages;
    }
  throw RowError(row.origin, "teacher_prompt", "takes the place of the last question, and the row has none");
}

// From what a server said of the batch.
ops::HeadDivergence told_divergence(const ops::HeadFactors& factors, const std::optional<ops::WordShare>& share,
                                    const Batch& batch, const ops::DivergenceRule& rule) {
  const at::Tensor &id_Nk = batch.own.at(kLikelyIds), &logprob_Nk = batch.own.at(kLikelyLogprobs);
  const int64_t vocabulary = share ? share->words : factors.weight_VD.size(0),
                highest = id_Nk.numel() ? id_Nk.max().item<int64_t>() : 0;
  require(highest < vocabulary, Fault::Usage, "the teacher finds token ", highest, " likely, and the model has ",
          vocabulary, " tokens: --teacher_model_server must be a model with the same tokenizer");
  const at::Device device = factors.hidden_TD.device();
  return ops::head_divergence_of_likely(factors, batch.label_T, id_Nk.to(device), logprob_Nk.to(device), rule, share);
}

// What an answer stands behind: `asked` up to its own answer.
Sample question_of(const Sample& asked) {
  Sample out;
  const size_t begin = answer_begin(asked);
  out.ids.assign(asked.ids.begin(), asked.ids.begin() + static_cast<long>(begin));
  out.media = media_before(asked, begin);
  return out;
}

// The same answer behind a question. What the environment said in it is read, and not compared; its pictures come along
// from behind `prompt` tokens, where they were shown.
Sample answered(Sample out, const std::vector<int32_t>& answer, const std::vector<uint8_t>& own,
                const std::vector<MediaItem>& media, size_t prompt) {
  const size_t begin = out.ids.size();
  out.trained.assign(begin, 0), out.trained.resize(begin + answer.size(), 1);
  std::copy(own.begin(), own.end(), out.trained.begin() + static_cast<long>(begin));
  out.ids.insert(out.ids.end(), answer.begin(), answer.end());
  for (MediaItem item : media) {
    if (item.begin < static_cast<int64_t>(prompt)) continue;
    item.begin += static_cast<int64_t>(begin) - static_cast<int64_t>(prompt);
    out.media.push_back(std::move(item));
  }
  out.columns[kRolled] = 1;
  return out;
}

}  // namespace

void Gkd::begin(const RunSetting& setting) {
  sampling_ = setting.sampling, tokenizer_ = setting.tokenizer, output_dir_ = setting.output_dir;
  device_ = setting.device, seed_ = setting.seed, rank_ = setting.rank, ranks_ = setting.ranks;
  sampling_.max_new_tokens = o_.max_completion_length, sampling_.top_logprobs = 0;
  require(sampling_.temperature > 0, Fault::Usage,
          "--temperature 0: probabilities are compared at this temperature, give 0.9 or 1");
  if (o_.several_turns()) {
    RoundOptions of_round{.environment = o_, .servers = o_};
    of_round.rewards.max_completion_length = o_.max_completion_length;
    of_round.rewards.external_plugins = o_.external_plugins;
    rounds_ = std::make_unique<AnswerRounds>(std::move(of_round), setting);
  }
  if (o_.teacher_model_server) {
    for (const TeacherPlace& place : o_.teacher_places()) {
      for (const std::string& tag : place.tags) taught_by_[tag] = servers_.size();
      servers_.emplace_back(place.url, kServerSeconds);
      log_info("teacher: ", servers_.back().model(), " at ", place.url,
               place.tags.empty() ? "" : " of the rows of " + join(place.tags, ", "));
    }
  }
}

std::vector<Sample> Gkd::encode(const Row& row, const Encoder& encoder) const {
  Samples out = encoder.encode(row);
  if (rounds_) out.at(0).row = rounds_->question(row, encoder).row;  // all columns, for the environment
  if (servers_.size() > 1) out.at(0).columns[kServer] = static_cast<float>(server_of(row));
  const auto told = row.value.find("teacher_prompt");
  if (told == row.value.end() || told->is_null()) return out;
  if (!told->is_string() || has_ids(row, ""))
    throw RowError(row.origin, "teacher_prompt", "is a text that takes the place of the last question");
  require(out.size() == 1, Fault::Bug, "a row became ", out.size(), " samples");
  Sample other = encoder.encode_messages(row, messages_for_teacher(row));
  if (other.trained_tokens() != out[0].trained_tokens())
    throw RowError(row.origin, "teacher_prompt", "with it the answer is cut: raise --max_length");
  other.grouped = true;
  out.push_back(std::move(other));
  return out;
}

// By its tag: a column's text, or the file that it is of.
size_t Gkd::server_of(const Row& row) const {
  const auto column = row.value.find(o_.teacher_tag_key);
  const bool named = column != row.value.end() && column->is_string();
  if (!named && (o_.teacher_tag_key != "dataset" || !row.origin.file))
    throw RowError(row.origin, o_.teacher_tag_key, "says which of the servers teaches a row, and this one has none");
  const std::string tag = named ? column->get<std::string>() : *row.origin.file;
  for (const auto& [known, server] : taught_by_)
    if (tag == known || (!named && std::filesystem::path(tag) == std::filesystem::absolute(known))) return server;
  std::vector<std::string> tags;
  for (const auto& [known, server] : taught_by_) tags.push_back(known);
  throw RowError(row.origin, o_.teacher_tag_key,
                 str("no server of --teacher_model_server has the tag '", tag, "'; they have ", join(tags)));
}

Reference Gkd::teacher(const Actors& actors) const {
  if (const auto found = actors.others.find("teacher"); found != actors.others.end())
    return Reference::of(*found->second.at(0));
  require(actors.reference.has_value(), Fault::Bug, "there is no teacher");
  return *actors.reference;
}

// The reference without adapters is the policy.
std::optional<ops::WordShare> Gkd::teacher_words(const Actors& actors) const {
  const auto found = actors.others.find("teacher");
  return word_share(found != actors.others.end() ? *found->second.at(0) : actors.policy);
}

// The same on all ranks, and again in a resumed run.
bool Gkd::asks_policy(int64_t step) const {
  return Random(seed_, stream_named("on policy"), static_cast<uint64_t>(step) << 8).uniform() < o_.lmbda;
}

std::vector<Update> Gkd::collect(Actors& actors, std::vector<Samples> micro_batches) {
  told_.clear();
  if (at::GradMode::is_enabled()) {
    if (asks_policy(actors.step)) {
      const auto alone = actors.policy.runner()->alone();
      actors.rollout->ask_servers(o_, rank_ == 0 && RowSharers(actors.sharers).first());
      answer(actors, micro_batches, *actors.rollout, true);
    } else if (o_.seq_kd) {
      Model& model = *actors.others.at("teacher").at(0);
      const auto alone = model.runner()->alone();
      if (!lecturer_)
        lecturer_ = std::make_unique<Rollout>(model, model.head_weight().options().requires_grad(false),
                                              EngineSpec{.max_sequences = 256}, nullptr, actors.rollout->line());
      answer(actors, micro_batches, *lecturer_, false);
    }
  }
  Update update;
  for (Samples& samples : micro_batches) {
    Samples mine, theirs;
    for (Sample& sample : samples) (sample.grouped ? theirs : mine).push_back(std::move(sample));
    Batch& batch = update.emplace_back(collate(mine));
    if (theirs.empty()) continue;
    require(theirs.size() == mine.size(), Fault::Data,
            "some rows have a teacher_prompt and some have none: give it to all, or train on them one after the other");
    batch.sequence_columns[kTold] =
        at::full({static_cast<int64_t>(mine.size())}, static_cast<double>(told_.size()), at::kFloat);
    told_.push_back(collate(theirs).to(device_));
  }
  if (!servers_.empty()) ask_servers(update);
  return {std::move(update)};
}

// The batch itself, where it is of an earlier collection, with which a rank without rows makes the passes of others.
const Batch& Gkd::read_by_teacher(const Batch& batch) const {
  const auto told = batch.sequence_columns.find(kTold);
  const size_t number =
      told == batch.sequence_columns.end() ? told_.size() : static_cast<size_t>(told->second[0].item<float>());
  return number < told_.size() ? told_[number] : batch;
}

// Each server all of its texts at once: it does several together.
std::vector<std::vector<LikelyTokens>> Gkd::likeliest(const std::vector<TeacherServer::Text>& texts,
                                                      const std::vector<size_t>& server_of) const {
  std::vector<std::vector<LikelyTokens>> out(texts.size());
  for (size_t server = 0; server < servers_.size(); ++server) {
    std::vector<size_t> place;
    std::vector<TeacherServer::Text> own;
    for (size_t i = 0; i < texts.size(); ++i)
      if (server_of[i] == server) place.push_back(i), own.push_back(texts[i]);
    if (own.empty()) continue;
    auto said = servers_[server].likeliest(own, *o_.gkd_logits_topk);
    for (size_t i = 0; i < place.size(); ++i) out[place[i]] = std::move(said[i]);
  }
  return out;
}

void Gkd::ask_servers(Update& update) const {
  const int64_t k = *o_.gkd_logits_topk;
  std::vector<TeacherServer::Text> texts;
  std::vector<size_t> of_batch, server_of;  // texts of a batch; whose a text is
  for (const Batch& batch : update) {
    const Batch& read = read_by_teacher(batch);
    require(read.media.empty(), Fault::Usage,
            "--teacher_model_server is asked about text alone, and a row has images, videos or sounds: give "
            "--teacher_model, a teacher in this process");
    const at::Tensor id_T = read.id_T.to(at::kCPU), label_T = read.label_T.to(at::kCPU);
    const auto *ids = id_T.data_ptr<int64_t>(), *labels = label_T.data_ptr<int64_t>();
    const auto servers = batch.sequence_columns.find(kServer);
    for (size_t s = 0; s < read.step.length_q.size(); ++s) {
      const int32_t length = read.step.length_q[s];
      const bool told = servers != batch.sequence_columns.end();
      server_of.push_back(told ? static_cast<size_t>(servers->second[static_cast<int64_t>(s)].item<float>()) : 0);
      TeacherServer::Text& text = texts.emplace_back();
      text.ids.assign(ids, ids + length);
      for (int32_t t = 0; t < length; ++t)
        if (labels[t] >= 0) text.places.push_back(static_cast<size_t>(t) + 1);
      ids += length, labels += length;
    }
    of_batch.push_back(read.step.length_q.size());
  }
  const auto said = likeliest(texts, server_of);
  auto next = said.begin();
  for (size_t b = 0; b < update.size(); ++b) {
    std::vector<int64_t> ids;
    std::vector<float> logprobs;
    for (size_t s = 0; s < of_batch[b]; ++s, ++next)
      for (const LikelyTokens& place : *next) {
        ids.insert(ids.end(), place.ids.begin(), place.ids.end());
        logprobs.insert(logprobs.end(), place.logprobs.begin(), place.logprobs.end());
      }
    update[b].own[kLikelyIds] = at::tensor(ids, at::kLong).view({std::ssize(ids) / k, k});
    update[b].own[kLikelyLogprobs] = at::tensor(logprobs, at::kFloat).view({std::ssize(logprobs) / k, k});
  }
}

std::vector<Gkd::Said> Gkd::said_to(Actors& actors, const std::vector<const Sample*>& asked, Rollout& engine,
                                    bool by_policy) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<MediaItem>> media;
  for (const Sample* sample : asked) {
    const size_t begin = answer_begin(*sample);
    prompts.emplace_back(sample->ids.begin(), sample->ids.begin() + static_cast<long>(begin));
    media.push_back(media_before(*sample, begin));
  }
  std::vector<Said> out;
  const auto say = [&](std::vector<Answer> answers) {
    for (Answer& answer : answers) {
      const std::string text = tokenizer_->decode(answer.ids, true);
      out.push_back({std::move(answer.ids), std::move(answer.own), answer.cut, text, std::move(answer.prompt),
                     std::move(answer.media)});
    }
  };
  if (rounds_ && by_policy) {
    Samples questions;
    for (size_t i = 0; i < asked.size(); ++i)
      questions.push_back({.ids = prompts[i],
                           .trained = std::vector<uint8_t>(prompts[i].size()),
                           .media = media[i],
                           .row = asked[i]->row});
    say(rounds_->ask(actors, questions, true).answers);
    return out;
  }
  Sampling sampling = sampling_;
  sampling.seed = mix(seed_, stream_named("rollout"), static_cast<uint64_t>(actors.step * ranks_ + rank_));
  const StopWords stop{.tokenizer = tokenizer_, .texts = o_.stop_words};
  const RowSharers sharers(actors.sharers);
  const auto share = sharers.share_of(prompts.size());
  const auto mine = [&share](auto& all) {
    const auto first = all.begin() + share.begin;
    return std::remove_reference_t<decltype(all)>(first, first + share.size);
  };
  sampling.seed += static_cast<uint64_t>(share.begin);
  std::vector<Answer> answers;
  for (const FinishedAnswer& from :
       engine.answers(mine(prompts), sampling, mine(media), stop.texts.empty() ? nullptr : &stop)) {
    require_ended(from, "rolling out answers");
    Answer& answer = answers.emplace_back();
    answer.ids = from.ids(), answer.cut = from.finish == Finish::Length;
  }
  say(sharers.together(std::move(answers)));
  return out;
}

// New answers in the place of those of the rows.
void Gkd::answer(Actors& actors, std::vector<Samples>& rows, Rollout& engine, bool by_policy) {
  std::vector<const Sample*> asked;
  for (const Samples& samples : rows)
    for (const Sample& sample : samples)
      if (!sample.grouped) asked.push_back(&sample);
  const std::vector<Said> answers = said_to(actors, asked, engine, by_policy);
  double tokens = 0, cut = 0;
  std::string lines;
  size_t next = 0;
  for (Samples& samples : rows) {
    const Said* said = nullptr;
    for (Sample& sample : samples) {
      if (!sample.grouped) {
        said = &answers[next++];
        tokens += static_cast<double>(said->own.empty() ? std::ssize(said->ids)
                                                        : std::count(said->own.begin(), said->own.end(), 1));
        cut += said->cut;
        if (o_.log_completions) {
          const std::vector<int32_t> prompt(sample.ids.begin(),
                                            sample.ids.begin() + static_cast<long>(answer_begin(sample)));
          lines += json_text(Json{{"step", actors.step + 1},
                                  {"prompt", tokenizer_->decode(prompt, false)},
                                  {"completion", said->text},
                                  {"by", by_policy ? "model" : "teacher"},
                                  {"truncated", said->cut}}) +
                   "\n";
        }
      }
      const bool grouped = sample.grouped;
      const auto server = sample.columns.find(kServer);
      const std::optional<float> taught = server == sample.columns.end() ? std::nullopt : std::optional(server->second);
      Sample question = question_of(sample);
      if (!grouped && !said->prompt.empty())
        question.ids = said->prompt, question.media = media_before({.media = said->media}, said->prompt.size());
      sample = answered(std::move(question), said->ids, said->own, said->media, said->prompt.size());
      sample.grouped = grouped;
      if (taught) sample.columns[kServer] = *taught;
    }
  }
  const auto noted = [](double sum, double count) {
    return Ratio{at::tensor(sum, at::kDouble), at::tensor(count, at::kDouble)};
  };
  noted_["completions/mean_length"] = noted(tokens, static_cast<double>(next));
  noted_["completions/clipped_ratio"] = noted(cut, static_cast<double>(next));
  if (!RowSharers(actors.sharers).first()) lines.clear();
  if (o_.log_completions) write_completions(lines, output_dir_, actors.data_ranks);
}

Loss Gkd::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const ops::DivergenceRule rule{
      .beta = o_.beta, .temperature = sampling_.temperature, .top_k = o_.gkd_logits_topk.value_or(0)};
  const Batch& read = read_by_teacher(batch);
  // The teacher's pass comes before the model's, whose results stay.
  const std::optional<ops::HeadFactors> lesson =
      !servers_.empty() ? std::nullopt : std::optional(teacher(actors).head_factors(read));
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const bool nothing_told = !servers_.empty() && batch.own.count(kLikelyIds) == 0;  // no batch of this rank's rows
  if (nothing_told) return {.sum = (hidden_TD * 0).sum(), .metrics = {}};
  const ops::HeadFactors factors = actors.policy.head_factors(hidden_TD, batch.step);
  const std::optional<ops::WordShare> words = word_share(actors.policy);
  const ops::HeadDivergence divergence =
      lesson ? ops::head_divergence(factors, batch.label_T, *lesson, read.label_T, rule, words, teacher_words(actors))
             : told_divergence(factors, words, batch, rule);
  Loss out{.sum = divergence.sum, .metrics = std::exchange(noted_, {})};
  const at::Tensor count = at::tensor(static_cast<double>(batch.trained), at::kFloat);
  out.metrics["divergence"] = {divergence.sum.detach(), count};
  const bool rolled = batch.sequence_columns.count(kRolled) > 0;
  out.metrics["on_policy"] = {at::tensor(rolled ? static_cast<double>(batch.trained) : 0.0, at::kFloat), count};
  if (o_.sft_alpha > 0 && !rolled) {
    // Weighed before it is summed: the gradient of one number times a factor would be made in f64.
    const ops::HeadLoss own = label_loss(actors.policy, factors, batch.label_T, batch.weight_T * o_.sft_alpha, {});
    out.sum = out.sum + own.loss_sum;
    out.metrics["sft_loss"] = {own.nll_T.sum(), count};
    out.metrics["token_acc"] = {own.correct_T.logical_and(batch.label_T.ge(0)).sum(), count};
  }
  return out;
}

namespace {
const RegisterAlgorithm<Gkd> gkd("gkd");
}  // namespace

}  // namespace apus
