// SPDX-License-Identifier: Apache-2.0
// apus export and apus merge-lora: adapters folded into a model's files; datasets encoded once for many runs.
#include "cli/export.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/merge.h"
#include "checkpoint/quantise_checkpoint.h"
#include "checkpoint/side_files.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "plan/model_facts.h"
#include "run/runner.h"
#include "run/train_data.h"
#include "tensor/dtype.h"

namespace apus {
namespace {

int run_quantise(const ExportOptions& o) {
  const Json config = read_model_config(o.model);
  require(!config.contains("quantization_config"), Fault::Usage, "--model ", o.model,
          " is quantised already; give the unquantised checkpoint");
  FolderWriter folder(o.output_dir);
  QuantiseSpec spec{
      .base = o.model, .output = folder.dir(), .wish = o.quantise, .layers = {}, .max_shard = o.max_shard_bytes};
  for (const ParamFacts& p : model_facts(config).params)
    if (p.linear && !o.quantise.skips(p.module())) spec.layers.insert(p.module());
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
  return 0;
}

int run_export(const ExportOptions& o) {
  if (o.quantise.any()) return run_quantise(o);
  if (o.to_cached_dataset) {
    cache_train_data(o, o, o, o.model, o.output_dir);
    return 0;
  }
  MergeSpec spec{.base = o.model, .parts = {}, .output = o.output_dir, .max_shard = o.max_shard_bytes, .dtype = {}};
  for (size_t i = 0; i < o.adapters.size(); ++i)
    spec.parts.push_back({o.adapters[i], o.adapter_weights.empty() ? 1 : o.adapter_weights[i]});
  if (o.torch_dtype) spec.dtype = parse_float_type(*o.torch_dtype);
  Progress progress("Merge", 0, {.unit = "tensor"});
  spec.progress = [&](int64_t done, int64_t of) { progress.set_total(of), progress.set(done); };
  const Stopwatch watch;
  const MergeReport report = merge_adapters(spec);
  progress.finish();
  log_info("Successfully merged into ", o.output_dir, ": ", report.tensors, " tensors (", report.changed,
           " changed) in ", report.shards, report.shards == 1 ? " file, " : " files, ", bytes_text(report.bytes),
           " in ", duration_text(watch.seconds()));
  return 0;
}

const RegisterRunner<ExportOptions> export_command("export", run_export);

}  // namespace
}  // namespace apus
