// SPDX-License-Identifier: Apache-2.0
// apus score: log-probabilities, loss and perplexity of given texts; logits and hidden states for those who ask.
#include "cli/score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/prompt_words.h"
#include "base/signals.h"
#include "data/read/reader.h"
#include "models/processed_media.h"
#include "models/seeing_decoder.h"
#include "run/inference.h"
#include "run/runner.h"
#include "tensor/safetensors.h"

namespace apus {

namespace {

constexpr int64_t kChunk = 64;  // tokens whose logits exist at once
constexpr int32_t kIgnored = -100;

struct ScoreRow {
  std::vector<int32_t> ids, labels;  // labels[i] is for ids[i]; kIgnored: not counted
  std::string error;
  std::filesystem::path media;  // safetensors file of a processor's tensors; empty: none
};

// Its images and videos, each with its tokens.
std::vector<MediaItem> media_of(const ScoreRow& row, const SeeingSpec& spec) {
  if (row.media.empty()) return {};
  return placed_media(row.ids, read_processed_media(row.media, spec), spec);
}

// What stands for an image, a video or a sound in a row that is not yet ids; empty: nothing.
std::string unread_media(const Json& row) {
  for (const char* column : {"images", "image", "videos", "video", "audios", "audio"})
    if (row.contains(column) && !row[column].is_null() && !row[column].empty()) return column;
  if (!row.contains("messages") || !row["messages"].is_array()) return "";
  for (const Json& message : row["messages"]) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
    for (const Json& part : message["content"])
      if (part.is_object() && part.value("type", Json("text")) != "text") return "messages: content";
  }
  return "";
}

// Rows in any of their three forms to ids. The tokenizer is opened when the first row needs it.
class RowEncoder {
 public:
  // `sight`: null when the model reads text only.
  RowEncoder(const ScoreOptions& o, int64_t vocab, int64_t positions, const SeeingSpec* sight)
      : o_(o), vocab_(vocab), positions_(positions), sight_(sight) {}

  // `folder`: where the row's file lies.
  ScoreRow operator()(const Json& row, const std::filesystem::path& folder) {
    ScoreRow out;
    require(row.is_object(), Fault::Data, "a row must be an object");
    const auto part = [&](const char* name) {  // null, as tables write what a row has not, is nothing
      return row.contains(name) && !row[name].is_null() ? &row[name] : nullptr;
    };
    if (const Json* ids = part("input_ids")) {
      out.ids = id_list(*ids, "input_ids");
    } else if (const std::string column = unread_media(row); !column.empty()) {
      fail(Fault::Data, "'", column,
           "': images, videos and sounds are scored as a processor's tensors: give 'input_ids' ",
           "and 'media', which apus tokenize and its --dump_media make of such a row");
    } else if (const Json* text = part("text")) {
      require(text->is_string(), Fault::Data, "'text' must be a text");
      out.ids = limited(tokenizer().encode(text->get_ref<const std::string&>(), true), o_.prompt);
    } else {
      require(part("messages"), Fault::Data, "a row needs 'input_ids', 'text' or 'messages'");
      out.ids = chat().prompt({.messages = part("messages"),
                               .tools = part("tools"),
                               .documents = part("documents"),
                               .kwargs = part("chat_template_kwargs"),
                               .whole = true});
    }
    require(!out.ids.empty(), Fault::Data, "the row has no tokens");
    const auto length = static_cast<int64_t>(out.ids.size());
    require(length <= o_.model.max_model_len.value_or(length), Fault::Data, "the row has ", length,
            " tokens, more than --max_model_len ", *o_.model.max_model_len);
    beyond_ += length > positions_;
    out.labels = part("labels") ? label_list(*part("labels"), out.ids.size()) : out.ids;
    if (const Json* media = part("media")) {
      require(part("input_ids"), Fault::Data, "'media' belongs to 'input_ids', which hold the tokens of the media");
      add_media(out, *media, folder, part("labels") != nullptr);
    }
    out.labels[0] = kIgnored;  // nothing comes before it
    return out;
  }

  int64_t beyond() const { return beyond_; }  // rows longer than the context the model was made for

 private:
  // Read here to be checked, and again when it is computed: rows wait without their pixels.
  void add_media(ScoreRow& out, const Json& media, const std::filesystem::path& folder, bool labelled) const {
    require(media.is_string(), Fault::Data, "'media' must be the path of a safetensors file");
    require(sight_, Fault::Usage, "'media': this model reads text only; take a model that sees");
    out.media = media.get<std::string>();
    if (out.media.is_relative() && !std::filesystem::exists(out.media)) out.media = folder / out.media;
    require(std::filesystem::exists(out.media), Fault::Data, "'media': ", media.get<std::string>(),
            " does not exist, neither here nor beside the rows");
    for (const MediaItem& item : media_of(out, *sight_))
      for (const int64_t t : own_tokens(out.ids, item, *sight_))
        if (!labelled) out.labels[static_cast<size_t>(t)] = kIgnored;  // nobody writes them
  }
  int32_t token(const Json& id, const char* key) const {
    const bool whole = id.is_number_integer();
    require(whole && ((id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab_) ||
                      (sight_ && is_tower_word(id.get<int64_t>(), *sight_))),
            Fault::Data, "'", key, "' holds ", id.dump(), ", which is no token of the vocabulary of ", vocab_);
    return id.get<int32_t>();
  }
  std::vector<int32_t> id_list(const Json& list, const char* key) const {
    require(list.is_array(), Fault::Data, "'", key, "' must be a list of token ids");
    std::vector<int32_t> out;
    for (const auto& id : list) out.push_back(token(id, key));
    return out;
  }
  std::vector<int32_t> label_list(const Json& list, size_t length) const {
    require(list.is_array() && list.size() == length, Fault::Data, "'labels' must be a list as long as the ids (",
            length, ")");
    std::vector<int32_t> out;
    for (const auto& id : list)
      out.push_back(id.is_number_integer() && id.get<int64_t>() < 0 ? kIgnored : token(id, "labels"));
    return out;
  }
  const Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = Tokenizer::load(o_.model.model);
    return *tokenizer_;
  }
  const Chat& chat() {
    tokenizer();
    if (!chat_) chat_ = std::make_unique<Chat>(o_.model.model, tokenizer_, o_.prompt);
    return *chat_;
  }
  const ScoreOptions& o_;
  const int64_t vocab_, positions_;
  const SeeingSpec* sight_;
  int64_t beyond_ = 0;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Chat> chat_;
};

std::vector<ScoreRow> read_rows(const ScoreOptions& o, RowEncoder& encode) {
  std::vector<ScoreRow> rows;
  std::filesystem::path folder;
  const auto add = [&](const std::function<Json()>& read, const std::string& where) {
    try {
      rows.push_back(encode(read(), folder));
    } catch (const Error& e) {
      if (o.strict || (e.at.fault != Fault::Data && e.at.fault != Fault::Usage))
        throw Error(e.at, where + ": " + e.what());
      log_warning(where, ": ", e.what());
      rows.push_back({.error = e.what()});
    }
  };
  const auto add_table = [&](const std::string& path, int64_t most) {
    const auto reader = open_reader(path, o.encoding);
    for (Row row; most > 0; --most) {
      try {
        if (!reader->next(row)) return;
      } catch (const RowError& e) {
        add([&]() -> Json { fail(Fault::Data, e.reason); }, e.origin.text());
        continue;
      }
      add([&] { return with_parsed_cells(row); }, row.origin.text());
    }
  };
  for (const auto& [path, wanted] : o.files()) {
    int64_t most = wanted.value_or(INT64_MAX);
    folder = std::filesystem::path(path).parent_path();
    if (!o.encoding.empty() || !is_plain_json_lines(path)) {
      add_table(path, most);
      continue;
    }
    LineReader reader(path);
    for (std::string line; most > 0 && reader.next(line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      --most;
      add([&] { return parse_json(line, "the row"); }, str(path, ", line ", reader.number()));
    }
  }
  return rows;
}

class Scorer {
 public:
  Scorer(const ScoreOptions& o, const LoadedModel& loaded, const SeeingSpec* sight, bool writes)
      : o_(o), loaded_(loaded), sight_(sight), writes_(writes) {
    if (writes) out_ = std::make_unique<LineWriter>(o.result_path);
  }
  void run(const std::vector<ScoreRow>& rows);

 private:
  void open_dump(const std::vector<ScoreRow>& rows);
  void forward(const std::vector<ScoreRow>& rows, const std::vector<size_t>& batch);
  std::vector<double> logprobs(const at::Tensor& hidden_TD, const std::vector<int32_t>& labels) const;
  void write(size_t index, const ScoreRow& row, const std::vector<double>& logprob);

  const ScoreOptions& o_;
  const LoadedModel& loaded_;
  const SeeingSpec* sight_;
  const bool writes_;
  std::unique_ptr<LineWriter> out_;  // of the rank that writes
  std::unique_ptr<SafetensorsWriter> dump_;
  double loss_sum_ = 0;
  int64_t tokens_ = 0, labels_ = 0, scored_ = 0;
};

void Scorer::open_dump(const std::vector<ScoreRow>& rows) {
  const ModelShape& shape = loaded_.model->shape();
  std::vector<SafetensorsWriter::Spec> specs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].error.empty()) continue;
    const auto length = static_cast<int64_t>(rows[i].ids.size());
    specs.push_back({str("logits.", i), at::kFloat, {length, shape.vocab}});
    specs.push_back({str("hidden.", i), at::kFloat, {length, shape.hidden}});
  }
  dump_ = std::make_unique<SafetensorsWriter>(o_.dump_logits, specs);
}

// log p(labels[t]) for every t whose label counts, from the hidden state before it; nan elsewhere.
std::vector<double> Scorer::logprobs(const at::Tensor& hidden_TD, const std::vector<int32_t>& labels) const {
  std::vector<double> out(labels.size(), std::nan(""));
  const auto length = static_cast<int64_t>(labels.size());
  for (int64_t begin = 0; begin + 1 < length; begin += kChunk) {
    const int64_t count = std::min(kChunk, length - 1 - begin);
    std::vector<int64_t> label(labels.begin() + begin + 1, labels.begin() + begin + 1 + count);
    if (std::all_of(label.begin(), label.end(), [](int64_t l) { return l < 0; })) continue;
    for (auto& l : label) l = std::max<int64_t>(l, 0);
    const at::Tensor logits = loaded_.model->head(hidden_TD.narrow(0, begin, count), Step{}).to(at::kFloat);
    const at::Tensor wanted = at::tensor(label, at::kLong).to(logits.device()).unsqueeze(1);
    const at::Tensor p = (at::gather(logits, 1, wanted).squeeze(1) - at::logsumexp(logits, {1})).to(at::kCPU);
    for (int64_t i = 0; i < count; ++i)
      if (labels[static_cast<size_t>(begin + 1 + i)] >= 0)
        out[static_cast<size_t>(begin + 1 + i)] = p.data_ptr<float>()[i];
  }
  return out;
}

void Scorer::forward(const std::vector<ScoreRow>& rows, const std::vector<size_t>& batch) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  Inputs::Media media;
  for (const size_t i : batch) {
    if (sight_) media.push_back(media_of(rows[i], *sight_));
    std::vector<int32_t> text = rows[i].ids;
    put_prompt_before(text, loaded_.prompt_words);
    lengths.push_back(static_cast<int32_t>(text.size()));
    ids.insert(ids.end(), text.begin(), text.end());
  }
  const at::Device device = loaded_.device.device;
  Step step = packed_step(lengths, device);
  if (std::all_of(media.begin(), media.end(), [](const auto& items) { return items.empty(); })) media.clear();
  const Inputs inputs(at::tensor(ids, at::kLong).to(device), std::move(media));
  step.position = loaded_.model->positions(inputs, step);
  const at::Tensor hidden_TD = loaded_.model->forward(inputs, step);
  int64_t begin = 0;
  for (size_t b = 0; b < batch.size(); ++b) {
    const int64_t before = loaded_.prompt_words;
    const at::Tensor own_TD = hidden_TD.narrow(0, begin + before, lengths[b] - before);
    begin += lengths[b];
    write(batch[b], rows[batch[b]], logprobs(own_TD, rows[batch[b]].labels));
    if (o_.dump_logits.empty()) continue;
    const at::Tensor logits_TV = loaded_.model->head(own_TD, Step{}).to(at::kCPU, at::kFloat).contiguous();
    if (!dump_) continue;
    dump_->add(str("logits.", batch[b]), logits_TV);
    dump_->add(str("hidden.", batch[b]), own_TD.to(at::kCPU, at::kFloat).contiguous());
  }
}

void Scorer::write(size_t index, const ScoreRow& row, const std::vector<double>& logprob) {
  Json list = Json::array();
  double loss = 0;
  int64_t count = 0;
  for (const double p : logprob) {
    list.push_back(std::isnan(p) ? Json() : Json(p));
    if (std::isnan(p)) continue;
    loss -= p;
    ++count;
  }
  const double mean = count > 0 ? loss / static_cast<double>(count) : 0;
  if (out_)
    out_->write(json_text({{"row", index},
                           {"num_tokens", row.ids.size()},
                           {"num_labels", count},
                           {"loss", count > 0 ? Json(mean) : Json()},
                           {"perplexity", count > 0 ? Json(std::exp(mean)) : Json()},
                           {"input_ids", row.ids},
                           {"logprobs", std::move(list)}}));
  if (out_) out_->flush();
  loss_sum_ += loss;
  labels_ += count;
  tokens_ += static_cast<int64_t>(row.ids.size());
  ++scored_;
}

void Scorer::run(const std::vector<ScoreRow>& rows) {
  const c10::InferenceMode inference;
  const StopFlag stop;
  if (writes_ && !o_.dump_logits.empty()) open_dump(rows);
  Progress progress("score", static_cast<int64_t>(rows.size()));
  for (size_t next = 0; next < rows.size();) {
    stop.throw_if_raised();
    std::vector<size_t> batch;
    int64_t tokens = 0;
    for (; next < rows.size() && rows[next].error.empty(); ++next) {
      tokens += static_cast<int64_t>(rows[next].ids.size());
      if (!batch.empty() && (!o_.packed || tokens > o_.max_batched_tokens)) break;
      batch.push_back(next);
    }
    if (!batch.empty()) forward(rows, batch);
    progress.advance(static_cast<int64_t>(batch.size()));
    for (; next < rows.size() && !rows[next].error.empty(); ++next) {
      if (out_) out_->write(json_text({{"row", next}, {"error", rows[next].error}}));
      progress.advance();
    }
  }
  progress.finish();
  if (out_) out_->close();
  if (dump_) dump_->commit();
  const double loss = labels_ > 0 ? loss_sum_ / static_cast<double>(labels_) : 0;
  const Json summary = {{"num_rows", scored_},
                        {"num_tokens", tokens_},
                        {"num_labels", labels_},
                        {"loss", labels_ > 0 ? Json(loss) : Json()},
                        {"perplexity", labels_ > 0 ? Json(std::exp(loss)) : Json()}};
  if (!writes_) return;
  const bool to_stdout = !o_.result_path.empty() && o_.result_path != "-";
  std::fprintf(to_stdout ? stdout : stderr, "%s\n", json_text(summary).c_str());
  require(scored_ > 0 || rows.empty(), Fault::Data, "none of the ", rows.size(), " rows could be scored");
}

// The same, with the token of images that some checkpoints leave to their tokenizer.
SeeingSpec with_tokens(SeeingSpec spec, const std::string& folder) {
  if (spec.image_token != kTokenizersChoice || !has_tokenizer(folder)) return spec;
  if (const auto id = Tokenizer::load(folder)->id("<IMG_CONTEXT>")) spec.image_token = spec.video_token = *id;
  return spec;
}

// Ranks that share out the model score the same rows, and the first one writes.
int score_rows(const ScoreOptions& o, AnswerRanks& ranks) {
  namespace fs = std::filesystem;
  for (const fs::path file : {o.result_path, o.dump_logits})  // said before the model is loaded
    if (file.has_parent_path() && !fs::exists(file)) make_writable_dir(file.parent_path());
  const LoadedModel loaded = load_for_inference(o.model, o.adapters.first(), o.placement, nullptr, o.quantise, &ranks);
  const auto* seeing = dynamic_cast<const SeeingDecoder*>(loaded.model.get());
  const std::optional<SeeingSpec> known =
      seeing ? std::optional(with_tokens(seeing->seeing(), o.model.model)) : std::nullopt;
  const SeeingSpec* const sight = known ? &*known : nullptr;
  RowEncoder encode(o, loaded.model->shape().vocab, loaded.max_positions, sight);
  const auto rows = read_rows(o, encode);
  if (encode.beyond() > 0)
    log_warning(encode.beyond(), encode.beyond() == 1 ? " row is" : " rows are", " longer than the ",
                loaded.max_positions,
                " positions that the checkpoint was made for; scored all the same, --max_model_len ",
                loaded.max_positions, " refuses them");
  Scorer(o, loaded, sight, ranks.leads()).run(rows);
  return 0;
}

int run_score(const ScoreOptions& o) {
  AnswerRanks ranks(o.mesh, o.model.device);
  return ranks.world().guard([&] { return score_rows(o, ranks); });
}

const RegisterRunner<ScoreOptions> score("score", run_score);

}  // namespace
}  // namespace apus
