// SPDX-License-Identifier: Apache-2.0
// apus export and apus merge-lora: adapters folded into a model's files; datasets encoded once for many runs.
#include "cli/export.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/merge.h"
#include "run/runner.h"
#include "run/train_data.h"
#include "tensor/dtype.h"

namespace apus {
namespace {

int run_export(const ExportOptions& o) {
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
