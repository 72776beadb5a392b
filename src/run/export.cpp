// SPDX-License-Identifier: Apache-2.0
// apus export and apus merge-lora: adapters folded into a model's files; quantised checkpoints; GGUF files and
// Modelfiles; datasets encoded once for many runs.
#include "cli/export.h"

#include <cmath>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/dequantise.h"
#include "checkpoint/file_names.h"
#include "checkpoint/gguf_export.h"
#include "checkpoint/gguf_folder.h"
#include "checkpoint/merge.h"
#include "checkpoint/ollama.h"
#include "checkpoint/quantise_checkpoint.h"
#include "checkpoint/side_files.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "gguf/model.h"
#include "plan/model_facts.h"
#include "run/calibrated_export.h"
#include "run/runner.h"
#include "run/train_data.h"
#include "tensor/dtype.h"
#include "tensor/weight_files.h"

namespace apus {
namespace {

void run_quantise(const ExportOptions& o) {
  if (o.calibrates()) return run_calibrated_export(o);
  const Json config = read_model_config(o.model);
  require(!config.contains("quantization_config"), Fault::Usage, "--model ", o.model,
          " is quantised already; give the unquantised checkpoint");
  FolderWriter folder(o.output_dir);
  QuantiseSpec spec{
      .base = o.model, .output = folder.dir(), .wish = o.quantise, .layers = {}, .max_shard = o.max_shard_bytes};
  const ModelFacts facts = model_facts(config);
  for (const ParamFacts& p : facts.params) {
    if (p.linear && !o.quantise.skips(p.module())) spec.layers.insert(p.module());
    for (const std::string& piece : p.pieces)
      for (int64_t e = 0; e < facts.experts; ++e) spec.layers.insert(str(p.module(), ".", e, ".", piece));
  }
  Progress progress("Quantise", 0, {.unit = "tensor"});
  spec.progress = [&](int64_t done, int64_t of) { progress.set_total(of), progress.set(done); };
  const Stopwatch watch;
  const QuantiseReport report = quantise_checkpoint(spec);
  copy_side_files(o.model, folder.dir());
  folder.commit();
  progress.finish();
  log_info("Successfully quantized and saved in ", o.output_dir, ": ", report.quantised, " of ", report.tensors,
           " tensors, ", bytes_text(report.bytes_before), " -> ", bytes_text(report.bytes), " in ",
           duration_text(watch.seconds()));
}

// `passing`: only as a step towards another form.
void merge(const ExportOptions& o, const std::filesystem::path& output, bool passing = false) {
  MergeSpec spec{.base = o.model, .parts = {}, .output = output, .max_shard = o.max_shard_bytes, .dtype = {}};
  for (size_t i = 0; i < o.adapters.size(); ++i)
    spec.parts.push_back({o.adapters[i], o.adapter_weights.empty() ? 1 : o.adapter_weights[i]});
  if (o.torch_dtype)
    spec.dtype = parse_float_type(*o.torch_dtype);
  else if (GgufModel::in_folder(o.model))  // whose quantised weights have no type of a checkpoint
    spec.dtype = parse_float_type(read_model_config(o.model).value("torch_dtype", ""));
  Progress progress("Merge", 0, {.unit = "tensor"});
  spec.progress = [&](int64_t done, int64_t of) { progress.set_total(of), progress.set(done); };
  const Stopwatch watch;
  const MergeReport report = merge_adapters(spec);
  progress.finish();
  if (!passing)
    log_info("Successfully merged into ", output.string(), ": ", report.tensors, " tensors (", report.changed,
             " changed) in ", report.shards, report.shards == 1 ? " file, " : " files, ", bytes_text(report.bytes),
             " in ", duration_text(watch.seconds()));
}

// Of a model whose weights are quantised: the same as a plain one.
void dequantise(const ExportOptions& o, const std::filesystem::path& output, bool passing) {
  const Json config = read_model_config(o.model);
  DequantiseSpec spec{.base = o.model, .output = output, .max_shard = o.max_shard_bytes};
  spec.dtype = choose_dtype(o.torch_dtype.value_or(""), config, at::kCPU, nullptr);
  Progress progress("Dequantise", 0, {.unit = "tensor"});
  spec.progress = [&](int64_t done, int64_t of) { progress.set_total(of), progress.set(done); };
  const DequantiseReport report = dequantise_checkpoint(spec);
  progress.finish();
  if (!passing)
    log_info("the weights of ", o.model, " are made plain: ", report.tensors, " tensors, ", bytes_text(report.bytes),
             " in ", float_type_name(spec.dtype));
}

// The same files again: of a model in other sizes or numbers, where that is asked for.
void write_anew(const ExportOptions& o) {
  if (o.adapters.empty() && is_quantised_checkpoint(o.model)) {
    dequantise(o, o.output_dir, /*passing=*/false);
  } else if (o.adapters.empty()) {
    merge(o, o.output_dir, /*passing=*/true);
  } else {
    FolderWriter folder(o.output_dir);
    copy_side_files(o.adapters[0], folder.dir());
    for (const std::string& name :
         {std::string(kAdapterConfigFile), std::string(kAdapterExtrasFile), single_file(kAdapterWeights)})
      if (const auto from = std::filesystem::path(o.adapters[0]) / name; std::filesystem::exists(from))
        std::filesystem::copy_file(from, folder.dir() / name);
    folder.commit();
  }
  log_info("Successfully written ", o.output_dir, " anew, from ", o.adapters.empty() ? o.model : o.adapters[0]);
}

void write_gguf(const ExportOptions& o, const std::filesystem::path& from) {
  GgufExport spec{
      .from = from, .to = o.gguf_path(), .mix = find_mix(o.to_gguf), .name = o.model_name(), .imatrix = o.imatrix};
  make_writable_dir(std::filesystem::absolute(spec.to).parent_path());
  Progress progress("Export", 0, {.unit = "tensor"});
  spec.progress = [&](int64_t done, int64_t of) { progress.set_total(of), progress.set(done); };
  const Stopwatch watch;
  const GgufReport report = export_gguf(spec);
  progress.finish();
  log_info("Successfully written ", spec.to.string(), ": ", report.tensors, " tensors as ", spec.mix->label(), ", ",
           bytes_text(report.bytes), ", ", std::round(10 * report.bits()) / 10, " bits a weight, in ",
           duration_text(watch.seconds()));
  if (!report.tower.empty())
    log_info("what it sees with stands in ", report.tower.string(), ": keep the two files in one folder");
  if (!o.imatrix.empty())
    log_info("the importance of their numbers was known of ", report.weighed, " matrices, by ", o.imatrix);
  if (report.larger > 0)
    log_info("the rows of ", report.larger, " matrices are no multiple of the ", ggml_form(spec.mix->base).block,
             " numbers of a block of ", spec.mix->label(),
             ": these take a larger format, so the file is larger than the name says");
}

// ollama reads folders of whole numbers and GGUF files.
void write_modelfile(const ExportOptions& o, const std::filesystem::path& folder) {
  const std::filesystem::path file = std::filesystem::path(o.output_dir) / "Modelfile";
  const auto given = gguf_meant(o.named);
  make_writable_dir(o.output_dir);
  std::string note;
  std::optional<ChatTemplate> chat = o.prompt.chat_template.empty()
                                         ? ChatTemplate::find(folder)
                                         : ChatTemplate::from_text(o.prompt.chat_template, "--chat_template", folder);
  write_file_atomic(file, modelfile(folder, !o.to_gguf.empty() ? o.gguf_path() : given ? *given : folder, chat, &note));
  if (!note.empty()) log_warning(note);
  log_info("Successfully written ", file.string(), "; next: ollama create NAME -f ", file.string());
}

// In another form: of the checkpoint, or of what merging its adapters gives, which stays only where it is the result.
void convert(const ExportOptions& o) {
  std::filesystem::path from = o.model;
  const bool quantised = !o.merge_lora && !o.to_gguf.empty() && is_quantised_checkpoint(o.model);
  const bool passing = (o.merge_lora && !o.to_gguf.empty()) || quantised;
  if (passing) from = o.output_dir + (quantised ? ".plain.tmp" : ".merged.tmp");
  if (quantised) {
    dequantise(o, from, passing);
  } else if (o.merge_lora) {
    if (!passing) from = o.output_dir;
    merge(o, from, passing);
  }
  try {
    if (!o.to_gguf.empty()) write_gguf(o, from);
    if (o.to_ollama) write_modelfile(o, from);
  } catch (...) {
    if (passing) std::filesystem::remove_all(from);
    throw;
  }
  if (passing) std::filesystem::remove_all(from);
}

void make(const ExportOptions& o) {
  if (o.quantise.any()) return run_quantise(o);
  if (o.to_cached_dataset)
    cache_train_data(o.prompt, o.data, o.hub, o.cached_rows(), o.model, o.output_dir);
  else if (o.converts())
    convert(o);
  else if (o.to_hf && !o.merge_lora)
    write_anew(o);
  else
    merge(o, o.output_dir);
}

void push(const ExportOptions& o) {
  UploadSpec spec = o.push.upload(o.hub);
  const std::filesystem::path made = o.pushed();
  spec.files = std::filesystem::is_directory(made)
                   ? files_with_card(made)
                   : std::vector<UploadFile>{
                         {made.filename().string(), made, {}, static_cast<int64_t>(std::filesystem::file_size(made))}};
  push_with_progress(spec);
}

int run_export(const ExportOptions& o) {
  if (o.push.push_to_hub) prepare_upload(o.push.upload(o.hub));  // what is wrong with it is known before the work
  if (!o.only_pushes()) make(o);
  if (o.push.push_to_hub) push(o);
  return 0;
}

const RegisterRunner<ExportOptions> export_command("export", run_export);

}  // namespace
}  // namespace apus
