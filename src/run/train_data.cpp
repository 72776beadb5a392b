// SPDX-License-Identifier: Apache-2.0
#include "run/train_data.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/files.h"
#include "base/log.h"
#include "base/plot.h"
#include "checkpoint/weights.h"
#include "data/encode/row_media.h"
#include "data/source/dataset_fetch.h"
#include "data/source/dataset_ref.h"
#include "data/source/training_data.h"
#include "models/spec/config_parts.h"
#include "plan/model_facts.h"
#include "run/rank_agreement.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// A number of config.json. 0: it does not say.
int64_t model_limit(const char* name, const fs::path& model_dir) {
  const Json config = read_model_config(model_dir);
  const Json& text = text_settings(config);
  const auto found = text.find(name);
  return found != text.end() && found->is_number_integer() ? std::max<int64_t>(0, found->get<int64_t>()) : 0;
}

// `before`: words of a trained prompt, with which a row is as long as it may be.
EncodeOptions encode_options(const TemplateOptions& t, const DataOptions& d, const fs::path& model_dir,
                             int64_t before) {
  EncodeOptions e;
  // --max_length, else what the model can read.
  const int64_t own_length = t.encoder ? model_facts(read_model_config(model_dir)).positions
                                       : model_limit("max_position_embeddings", model_dir);
  const int64_t max_length = t.max_length.value_or(own_length);
  e.vocabulary = model_limit("vocab_size", model_dir);
  e.use_chat_template = t.use_chat_template, e.system = t.system, e.encoder = t.encoder;
  require(max_length == 0 || max_length > before, Fault::Usage, "--max_length ", max_length,
          " leaves no room behind the ", before, " words of the prompt (--num_virtual_tokens): raise it");
  e.max_length = max_length > 0 ? max_length - before : 0, e.truncation = truncation_named(t.truncation_strategy);
  e.loss_scale = d.loss_scale, e.binary_loss_scale = d.is_binary_loss_scale;
  e.add_non_thinking_prefix = d.add_non_thinking_prefix, e.ignore_empty_think = !d.disable_ignore_empty_think,
  e.preserve_thinking = d.preserve_thinking;
  e.chat_template_kwargs = t.chat_template_kwargs.is_object() ? t.chat_template_kwargs : Json::object();
  if (t.enable_thinking) e.chat_template_kwargs["enable_thinking"] = *t.enable_thinking;
  return e;
}

std::optional<ChatTemplate> chat_template(const TemplateOptions& o, const fs::path& model_dir) {
  if (!o.use_chat_template) return std::nullopt;
  ChatTemplate chosen = o.chat_template.empty()
                            ? ChatTemplate::load(model_dir)
                            : ChatTemplate::from_text(o.chat_template, "--chat_template", model_dir);
  chosen.use_agent(o.agent_template);
  return chosen;
}

DatasetOptions dataset_options(const DataOptions& o, const HubFlags& hub) {
  DatasetOptions d;
  d.train = o.dataset, d.validation = o.val_dataset;
  d.split_ratio = o.streaming || !o.val_dataset.empty() ? 0 : o.split_dataset_ratio;
  if (d.split_ratio != o.split_dataset_ratio)
    log_info("--split_dataset_ratio is not used: ", o.streaming ? "rows are streamed" : "there is a --val_dataset");
  d.shuffle = o.dataset_shuffle, d.shuffle_validation = o.val_dataset_shuffle;
  d.interleave = o.interleave_prob, d.stopping = stopping_named(o.stopping_strategy),
  d.seed = static_cast<uint64_t>(o.data_seed);
  d.normalize = {.columns = parse_columns(o.columns),
                 .auto_mapping = !o.disable_auto_column_mapping,
                 .seed = static_cast<uint64_t>(o.data_seed),
                 .names = {o.model_name, o.model_author}};
  d.encoding = o.encoding;
  d.fetch = hub_datasets(hub.use_hf, hub.hub_token.value_or(""));
  d.known = DatasetInfo(o.custom_dataset_info), d.use_hf = hub.use_hf;
  return d;
}

TrainingDataOptions data_options(const TrainRun& o, DataShare share, int64_t max_length, bool sees) {
  TrainingDataOptions d;
  const bool asks = algorithm_info(o.algorithm).asks_rows;
  d.datasets = dataset_options(o.data, o.model);
  d.datasets.normalize.keep_unused = algorithm_info(o.algorithm).rolls_out();
  d.cached_as = cached_as(algorithm_info(o.algorithm), o.own);
  d.cached = o.data.cached_dataset, d.cached_validation = o.data.cached_val_dataset;
  d.streaming = o.data.streaming, d.lazy = o.data.lazy_tokenize.value_or(false),
  d.shuffle_buffer = o.data.shuffle_buffer_size, d.threads = o.data.dataset_num_proc;
  d.batches = {.batch_size = asks ? 1 : o.loop.per_device_train_batch_size,  // answers are what is counted there
               .packing = o.data.packing,
               .packing_length = o.data.packing_length.value_or(max_length),
               .strategy = packing_named(o.data.packing_strategy),
               .group_by_length = o.data.group_by_length,
               .shuffle = o.data.train_dataloader_shuffle,
               .seed = static_cast<uint64_t>(o.data.data_seed),
               .rank = share.rank,
               .ranks = share.ranks,
               // Every row once, as with one process; the trainer knows that a rank may have one less.
               .even = false};
  d.row_sharers = share.group_sharers;
  d.validation_batch_size = o.loop.per_device_eval_batch_size;
  if (sees) d.ahead = 4;  // pixels take more memory than text
  return d;
}

void plot_lengths(const LengthReport& report, const fs::path& run_dir) {
  PlotLine line{.name = "rows", .points = {}};
  for (size_t i = 0; i < report.counts.size(); ++i) {
    line.points.emplace_back(static_cast<double>(report.edges[i]), static_cast<double>(report.counts[i]));
    line.points.emplace_back(static_cast<double>(report.edges[i + 1]), static_cast<double>(report.counts[i]));
  }
  make_writable_dir(run_dir / "images");
  write_plots(run_dir / "images/dataset_length", "rows by length", "tokens", {line});
}

// What sources refer to, for as long as they live.
struct Keep {
  Keep(RejectLog::Spec spec, Encoder e, std::shared_ptr<const MediaReader> m)
      : rejects(std::move(spec)), encoder(std::move(e)), media(std::move(m)) {}
  void count_media(const Samples& samples) {
    for (const Sample& sample : samples) {
      int64_t tokens = 0;
      for (const MediaItem& item : sample.media) tokens += item.length;
      for (int64_t most = most_media; tokens > most && !most_media.compare_exchange_weak(most, tokens);) continue;
    }
  }
  RejectLog rejects;
  Encoder encoder;
  std::shared_ptr<const MediaReader> media;  // null: the model reads text only
  std::atomic<int64_t> most_media = 0;       // tokens that stand for media in one sample
};

std::shared_ptr<Keep> open_encoder(const TemplateOptions& prompt, const DataOptions& data, const fs::path& model_dir,
                                   int64_t before, RejectLog::Spec rejects) {
  const auto tokenizer = Tokenizer::load(model_dir);
  const auto media = open_media_reader(model_dir, *tokenizer, prompt.media);
  EncodeOptions options = encode_options(prompt, data, model_dir, before);
  if (media) options.media = media->made_with();
  auto keep = std::make_shared<Keep>(std::move(rejects),
                                     Encoder(tokenizer, chat_template(prompt, model_dir), options, media), media);
  keep->encoder.on_remark(
      [log = &keep->rejects](const Origin& origin, const std::string& text) { log->remark(origin, text); });
  return keep;
}

// What a dataset is, wherever it lies and however its path is written: a file's name and size, or the hub's id.
Json identities(const std::vector<std::string>& refs) {
  Json all = Json::array();
  for (const std::string& text : refs) {
    const DatasetRef ref = parse_dataset_ref(text);
    const fs::path path = (fs::path(ref.id) / "").lexically_normal().parent_path();  // without a slash at its end
    std::error_code code;
    const bool local = ref.hub == DatasetRef::Hub::Default && fs::exists(path, code);
    const std::string size =
        local && fs::is_regular_file(path, code) ? str(" (", fs::file_size(path, code), " bytes)") : "";
    all.push_back(local ? path.filename().string() + ref.text.substr(ref.id.size()) + size : text);
  }
  return all;
}

// Words that the tuner puts before every text.
int64_t prompt_words(const TrainRun& o) {
  return adapter_abilities(o.tuner.tuner_type).own_words ? o.tuner.kinds.num_virtual_tokens : 0;
}

// `rejected`: the file for rows that are left out; the first rank writes it.
std::shared_ptr<Keep> encoder_of(const TrainRun& o, const fs::path& model_dir, const fs::path& rejected, bool first) {
  TemplateOptions prompt = o.prompt;
  if (!prompt.max_length) prompt.max_length = o.model.max_model_len;
  return open_encoder(
      prompt, o.data, model_dir, prompt_words(o),
      {.file = first && !o.common.dry_run ? rejected : fs::path(), .strict = o.data.strict, .shown = first ? 20 : 0});
}

}  // namespace

TrainData open_train_data(const TrainRun& o, const Algorithm& algorithm, const fs::path& model_dir,
                          const fs::path& run_dir, DataShare share) {
  const bool first = share.rank == 0 && share.speaks;  // all ranks read the same rows; one speaks of them
  const auto keep = encoder_of(o, model_dir, run_dir / "rejected.jsonl", first);
  const int64_t before = prompt_words(o);
  TrainingDataOptions options =
      data_options(o, share, keep->encoder.options().max_length + before, !keep->encoder.options().media.is_null());
  // Evaluations ask as many questions at once as a round of training does.
  if (algorithm_info(o.algorithm).asks_rows)
    options.validation_batch_size = algorithm.batches_per_collection().value_or(1);
  const EncodeRow encode = [&algorithm, &keep = *keep, before](const Row& row) {
    Samples samples = algorithm.encode(row, keep.encoder);
    for (Sample& sample : samples) put_prompt_before(sample, before);
    keep.count_media(samples);
    return samples;
  };
  TrainingData data = prepare_training_data(options, keep->encoder, keep->rejects, encode);

  if (data.first) log_info(sample_dump(*data.first, keep->encoder.tokenizer()));
  TrainData out;
  if (data.report) {
    log_info(report_text(*data.report, algorithm_info(o.algorithm).asks_rows));
    if (first) plot_lengths(*data.report, run_dir);
    out.train_text = length_line(*data.report);
    out.longest = data.report->longest, out.rows = data.report->rows, out.rejected = data.report->rejected;
  }
  if (data.validation_report) out.eval_text = length_line(*data.validation_report);
  if (first && o.data.split_dataset_ratio > 0 && !data.validation_rows.empty() && o.data.val_dataset.empty())
    save_rows(*data.rows, data.validation_rows, run_dir / "val_dataset.jsonl");
  out.exact = {{"dataset", identities(o.data.dataset)},
               {"cached_dataset", identities(o.data.cached_dataset)},
               {"samples", data.report ? data.report->rows : -1},
               {"packing_length", o.data.packing ? options.batches.packing_length : 0}};
  out.exact.update(keep->encoder.made_with());
  if (share.ranks > 1) out.rows_text = data.rows ? rows_by_file(*data.rows) : json_text(out.exact);
  if (keep->media) {
    out.media_line = [keep] { return keep->media->cache_line(); };
    out.media = [keep, longest = out.longest] {
      return MediaFacts{keep->most_media, longest, keep->media->kept_bytes()};
    };
  }
  out.keep = keep, out.train = std::move(data.train), out.eval = std::move(data.validation);
  return out;
}

TrainData open_shown_rows(const TrainRun& o, const std::vector<std::string>& datasets, int64_t rows,
                          const fs::path& model_dir, const fs::path& run_dir, DataShare share) {
  const bool first = share.rank == 0 && share.speaks;
  const auto keep = encoder_of(o, model_dir, run_dir / "rejected_shown.jsonl", first);
  share.group_sharers = 1;
  TrainingDataOptions options =
      data_options(o, share, keep->encoder.options().max_length, !keep->encoder.options().media.is_null());
  options.datasets.train = datasets, options.datasets.validation.clear(), options.datasets.split_ratio = 0;
  options.datasets.interleave.clear(), options.datasets.normalize.keep_unused = false;
  options.cached.clear(), options.cached_validation.clear(), options.streaming = false;
  options.batches.batch_size = rows, options.batches.even = true;
  TrainingData data = prepare_training_data(options, keep->encoder, keep->rejects);
  TrainData out;
  out.exact = {{"shown_dataset", identities(datasets)}};
  out.keep = keep, out.train = std::move(data.train);
  return out;
}

void cache_train_data(const TemplateOptions& prompt, const DataOptions& data, const HubFlags& hub,
                      const CachedRows& kind, const fs::path& model_dir, const fs::path& folder) {
  make_writable_dir(folder);
  const auto keep =
      open_encoder(prompt, data, model_dir, 0, {.file = folder / "rejected.jsonl", .strict = data.strict});
  const Datasets sets = load_datasets(dataset_options(data, hub), keep->rejects);
  const auto algorithm = make_algorithm(kind.algorithm, kind.own);
  Json made = keep->encoder.made_with();
  made.update(cached_as(algorithm_info(kind.algorithm), kind.own));
  const auto write = [&](const std::vector<int64_t>& rows, const char* part, const char* title) {
    if (rows.empty()) return;
    const SampleStore samples = encode_rows(
        *sets.rows, rows, [&](const Row& row) { return algorithm->encode(row, keep->encoder); }, keep->rejects,
        data.dataset_num_proc, title);
    require(samples.size() > 0, Fault::Data, "no row is left for ", part, ": all were left out for the reasons above");
    samples.save(folder / part, made);
    log_info(report_text(length_report(samples, keep->rejects.count())));
    log_info("cached: ", (folder / part).string(), ": ", samples.size(), " samples");
  };
  write(sets.train, "train", "Encoding rows");
  write(sets.validation, "val", "Encoding validation rows");
  keep->rejects.summarize();
}

CalibrationRows calibration_rows(const TemplateOptions& prompt, const DataOptions& data, const HubFlags& hub,
                                 const fs::path& model_dir, int64_t rows, int64_t block) {
  constexpr int64_t kJudged = 64;
  const auto keep = open_encoder(prompt, data, model_dir, 0, {.strict = data.strict});
  const Datasets sets = load_datasets(dataset_options(data, hub), keep->rejects);
  std::vector<int64_t> chosen = sets.train;
  chosen.resize(static_cast<size_t>(std::min(rows + kJudged, static_cast<int64_t>(chosen.size()))));
  const SampleStore samples = encode_rows(
      *sets.rows, chosen, [&](const Row& row) { return keep->encoder.encode(row); }, keep->rejects,
      data.dataset_num_proc, "Encoding rows");
  keep->rejects.summarize();
  CalibrationRows out;
  std::vector<int64_t> ids;
  out.judged_unseen = samples.size() > rows;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const Sample sample = samples.get(i);
    require(sample.media.empty(), Fault::Usage,
            "--dataset has rows with images, videos or sounds; calibration runs the language model on text alone");
    if (i < rows) ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
    if (out.judged_unseen ? i < rows : i >= kJudged) continue;
    out.judged.emplace_back(sample.ids.begin(), sample.ids.begin() + std::min(block, sample.length()));
  }
  const auto count = static_cast<int64_t>(ids.size());
  require(count > 1, Fault::Data, "--dataset gives ", count, " tokens for calibration; give rows with text");
  if (count < block)
    log_warning("calibration: all ", samples.size(), " rows together have ", count, " tokens, less than one block of ",
                block, " (--max_length); more rows make better weights");
  for (int64_t at = 0; at + block <= count; at += block)
    out.blocks.emplace_back(ids.begin() + at, ids.begin() + at + block);
  if (out.blocks.empty()) out.blocks.push_back(std::move(ids));
  return out;
}

}  // namespace apus
