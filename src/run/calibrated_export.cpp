// SPDX-License-Identifier: Apache-2.0
#include "run/calibrated_export.h"

#include <cstdio>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/calibrate.h"
#include "checkpoint/quantise_checkpoint.h"
#include "checkpoint/side_files.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"
#include "quant/format.h"
#include "run/train_data.h"
#include "tensor/safetensors_header.h"
#include "tensor/stored_writer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
constexpr int64_t kUsualBlock = 2048;  // tokens, where --max_length does not say

// A file for each decoder layer as it is made, so that no more than one is in memory. The checkpoint is written
// from these files.
class LayerFiles {
 public:
  LayerFiles(fs::path folder, const Model& model) : folder_(std::move(folder)), model_(model) {
    make_writable_dir(folder_);
  }
  ~LayerFiles() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  LayerFiles(const LayerFiles&) = delete;
  LayerFiles& operator=(const LayerFiles&) = delete;

  void keep(int64_t layer, const CalibratedLayer& made) {
    const fs::path path = folder_ / (std::to_string(layer) + ".safetensors");
    int64_t space = 1024;
    for (const auto& [name, pieces] : made.quantised)
      space += static_cast<int64_t>(pieces.size()) * (StoredWriter::header_space_for(name) + 64);
    for (const auto& [name, tensor] : made.changed) space += StoredWriter::header_space_for(name) + 64;
    StoredWriter writer(path, space);
    for (const auto& [name, pieces] : made.quantised)
      for (const auto& [piece, tensor] : pieces) writer.add(name + "." + piece, tensor);
    for (const auto& [name, tensor] : made.changed) writer.add(name, tensor);
    writer.commit();
    open(path, made);
  }
  MadeWeights& made() { return made_; }

 private:
  void open(const fs::path& path, const CalibratedLayer& layer) {
    const auto file = std::make_shared<const MappedFile>(path);
    const auto header = parse_safetensors_header(file->data(), file->size(), path.string());
    const auto mapped = [&](const std::string& name) -> StoredTensor {
      const auto& entry = header.tensors.at(name);
      return {entry.type, entry.shape, file->data() + entry.begin, entry.end - entry.begin, file};
    };
    for (const auto& [name, pieces] : layer.quantised)
      for (const auto& [piece, tensor] : pieces) made_.layers[on_disk(name)][piece] = mapped(name + "." + piece);
    for (const auto& [name, tensor] : layer.changed) made_.changed[model_.disk_form().disk_name(name)] = mapped(name);
  }
  std::string on_disk(const std::string& layer) const {
    const std::string end = ".weight", name = model_.disk_form().disk_name(layer + end);
    return name.substr(0, name.size() - end.size());
  }

  const fs::path folder_;
  const Model& model_;
  MadeWeights made_;
};

CalibrationSpec calibration_spec(const ExportOptions& o, CalibrationRows rows) {
  CalibrationSpec spec;
  spec.method = *o.quantise.method, spec.by_importance = o.desc_act;
  spec.form = quant::calibrated_making(spec.method)->form(spec.method, o.quantise.bits.value_or(4), o.group_size);
  spec.blocks = std::move(rows.blocks), spec.judged = std::move(rows.judged);
  spec.batch = o.quant_batch_size > 0 ? o.quant_batch_size : static_cast<int64_t>(spec.blocks.size());
  spec.skip = [&wish = o.quantise](const std::string& layer) { return wish.skips(layer); };
  return spec;
}

std::string perplexity_text(double perplexity) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", perplexity);
  return text;
}

void tell(const CalibrationReport& report, const std::string& judged) {
  if (!report.plain.empty())
    log_warning(report.plain.size(),
                " linear layers stay plain, as their sides do not fit the format: ", report.plain[0],
                report.plain.size() > 1 ? ", ..." : "");
  if (!report.unmet.empty())
    log_warning(report.unmet.size(),
                " linear layers of experts met no row and are rounded to the nearest numbers: ", report.unmet[0],
                report.unmet.size() > 1 ? ", ..." : "", ". More rows (--quant_n_samples) reach more");
  if (report.perplexity > 0)
    log_info("perplexity of ", judged, ": ", perplexity_text(report.perplexity_before), " before, ",
             perplexity_text(report.perplexity), " after");
}
}  // namespace

void run_calibrated_export(const ExportOptions& o) {
  const Json config = read_model_config(o.model);
  require(!config.contains("quantization_config"), Fault::Usage, "--model ", o.model,
          " is quantised already; give the unquantised checkpoint");
  const Stopwatch watch;
  const auto model = make_model(config, natural_head(config));
  load_weights(*model, TensorFolder(o.model), {.dtype = choose_dtype("", config, at::kCPU, nullptr)});
  const int64_t positions = model->shape().max_positions;
  const int64_t block = o.prompt.max_length.value_or(positions > 0 ? std::min(positions, kUsualBlock) : kUsualBlock);
  CalibrationRows rows = calibration_rows(o.prompt, o.data, o.hub, o.model, o.quant_n_samples, block);
  const std::string judged = str(rows.judged.size(), rows.judged_unseen ? " further rows" : " of the rows");
  CalibrationSpec spec = calibration_spec(o, std::move(rows));
  spec.device = open_device("auto").device;
  log_info("calibration: ", spec.blocks.size(), spec.blocks.size() == 1 ? " block of " : " blocks of ",
           spec.blocks[0].size(), " tokens");

  FolderWriter folder(o.output_dir);
  LayerFiles files(folder.dir() / ".layers", *model);
  Progress progress("Calibrate", model->shape().layers, {.unit = "layer"});
  spec.progress = [&](int64_t done, int64_t) { progress.set(done); };
  const CalibrationReport calibrated =
      calibrate(*model, spec, [&](int64_t layer, const CalibratedLayer& made) { files.keep(layer, made); });
  progress.finish();
  MadeWeights& made = files.made();
  require(!made.layers.empty(), Fault::Model, o.model, " has no linear layer that ", *o.quantise.method, " could hold");
  made.config = quant::calibrated_making(spec.method)
                    ->config({spec.form, spec.by_importance, model->backbone_name() + ".layers", calibrated.groups,
                              calibrated.plain});
  QuantiseSpec writing{
      .base = o.model, .output = folder.dir(), .wish = {}, .layers = {}, .made = &made, .max_shard = o.max_shard_bytes};
  for (const auto& [name, pieces] : made.layers) writing.layers.insert(name);
  const QuantiseReport report = quantise_checkpoint(writing);
  copy_side_files(o.model, folder.dir());
  fs::remove_all(folder.dir() / ".layers");
  folder.commit();
  tell(calibrated, judged);
  log_info("Successfully quantized and saved in ", o.output_dir, ": ", report.quantised, " of ", report.tensors,
           " tensors, ", bytes_text(report.bytes_before), " -> ", bytes_text(report.bytes), " in ",
           duration_text(watch.seconds()));
}

}  // namespace apus
