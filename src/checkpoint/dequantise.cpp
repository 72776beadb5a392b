// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dequantise.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <memory>

#include "base/log.h"
#include "checkpoint/file_names.h"
#include "checkpoint/shards.h"
#include "checkpoint/side_files.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"

namespace apus {

bool is_quantised_checkpoint(const std::filesystem::path& dir) {
  return read_model_config(dir).contains("quantization_config");
}

DequantiseReport dequantise_checkpoint(const DequantiseSpec& spec) {
  const at::NoGradGuard no_grad;
  Json config = read_model_config(spec.base);
  const auto model = make_model(config, natural_head(config));
  const auto quantised = quantised_weights(config, {}, spec.base);
  FolderWriter folder(spec.output);
  DequantiseReport report;
  std::unique_ptr<ShardsWriter> writer;  // once the form of the files is known
  int64_t all = 0;
  const auto write = [&](const std::string& name, Param& p) {
    if (!writer) {
      std::vector<SafetensorsWriter::Spec> tensors;
      for (const DiskShape& t : disk_shapes(*model, model->disk_form()))
        tensors.push_back({t.name, t.type.value_or(spec.dtype), t.shape});
      all = std::ssize(tensors);
      writer = std::make_unique<ShardsWriter>(folder.dir(), tensors, spec.max_shard);
    }
    each_disk_tensor(
        name, p, p.data,
        [&](const DiskTensor& t) { writer->add(t.name, t.data), spec.progress(++report.tensors, all); },
        model->disk_form());
    p.data = at::Tensor();
  };
  const UnreadTensors unread =
      load_weights(*model, TensorFolder(spec.base),
                   {.dtype = spec.dtype, .quantised = quantised.get(), .made_plain = true, .filled = write});
  for (const auto* names : {&unread.ahead, &unread.speech, &unread.drawing})
    if (!names->empty())
      log_warning(names->size(), " tensors (", names->front(), ", ...) are left out of ", spec.output.string());
  writer->commit();
  report.bytes = writer->bytes();
  config.erase("quantization_config");
  config[config.contains("dtype") && !config.contains("torch_dtype") ? "dtype" : "torch_dtype"] =
      float_type_name(spec.dtype);
  write_file_atomic(folder.dir() / kModelConfigFile, config.dump(2) + "\n");
  copy_side_files(spec.base, folder.dir());
  folder.commit();
  return report;
}

}  // namespace apus
