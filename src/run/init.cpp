// SPDX-License-Identifier: Apache-2.0
// apus init: a complete HuggingFace checkpoint with random weights, from a preset or a config.json.
#include "cli/init.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/vectors.h"
#include "checkpoint/shards.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"
#include "run/runner.h"
#include "text/builtin_templates.h"
#include "text/tokenizer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// Normal values that depend on the seed and the tensor's name alone, whatever else is in the model and however many
// threads work: each run of kRun values has a key of its own.
at::Tensor normal(const DiskShape& t, uint64_t seed, double deviation) {
  constexpr int64_t kRun = 1 << 16;
  at::Tensor out = at::empty(t.shape, at::kFloat);
  float* p = out.data_ptr<float>();
  const uint64_t stream = stream_named(t.name);
  at::parallel_for(0, (out.numel() + kRun - 1) / kRun, 1, [&](int64_t first, int64_t last) {
    for (int64_t run = first; run < last; ++run) {
      const int64_t begin = run * kRun, count = std::min(out.numel() - begin, kRun);
      vectors::normals(mix(seed, stream, static_cast<uint64_t>(run)), {p + begin, static_cast<size_t>(count)});
      for (int64_t i = begin; i < begin + count; ++i) p[i] *= static_cast<float>(deviation);
    }
  });
  return out;
}

at::Tensor initial(const DiskShape& t, uint64_t seed, double deviation) {
  const bool vector = t.shape.size() == 1 && t.name.ends_with(".weight");  // of a norm, whatever it is called
  if (vector || t.name.ends_with("norm.weight") || t.name.find("layernorm") != std::string::npos)
    return at::ones(t.shape, at::kFloat);
  if (t.name.ends_with(".bias")) return at::zeros(t.shape, at::kFloat);
  // Of xielu (nn/mlp.h).
  if (t.name.ends_with(".act_fn.alpha_p") || t.name.ends_with(".act_fn.alpha_n"))
    return at::full(t.shape, std::log(std::expm1(t.name.ends_with("p") ? 0.8 : 0.3)), at::kFloat);
  if (t.name.ends_with(".act_fn.beta")) return at::full(t.shape, 0.5, at::kFloat);
  if (t.name.ends_with(".act_fn.eps")) return at::full(t.shape, -1e-6, at::kFloat);
  // Of layers with a state: heads that forget at different speeds, in steps of usual lengths.
  if (t.name.ends_with(".A_log")) {
    const bool table = t.shape.size() == 2;  // of channels, each with a row of states; else a number a head
    const int64_t speeds = table ? t.shape[1] : at::empty(t.shape).numel();
    const at::Tensor values = at::arange(1, speeds + 1, at::kFloat).mul_(16.0 / static_cast<double>(speeds)).log_();
    return table ? values.expand(t.shape).contiguous() : values.view(t.shape);
  }
  if (t.name.ends_with(".dt_bias")) return at::linspace(-6, -2, t.shape[0], at::kFloat);
  if (t.name.ends_with(".D")) return at::ones(t.shape, at::kFloat);
  const bool of_streams = (t.name.find("hc_") != std::string::npos && t.name.ends_with("scale")) ||
                          t.name.ends_with(".altup.correct_output_scale");
  if (of_streams) return at::ones(t.shape, at::kFloat);
  return normal(t, seed, deviation);
}

// Of each word the experts that its tokens meet: others than those of the next one.
at::Tensor experts_by_word(const std::vector<int64_t>& shape, int64_t experts) {
  return (at::arange(shape[0], at::kLong).unsqueeze(1) + at::arange(shape[1], at::kLong)).remainder(experts);
}

void copy_tokenizer(const InitOptions& o, const fs::path& dir) {
  if (o.tokenizer.empty()) {
    for (const auto& name : asset_names("tokenizer/")) write_file_atomic(dir / fs::path(name).filename(), asset(name));
    write_file_atomic(dir / "chat_template.jinja", builtin_template("chatml"));
    return;
  }
  const fs::path from = o.tokenizer;
  const auto copy = [&](const char* name) {
    if (fs::exists(from / name)) write_file_atomic(dir / name, read_file(from / name, int64_t{1} << 30));
  };
  for (const char* name : kTokenizerFiles) copy(name);
  for (const char* name : kBesideTokenizer) copy(name);
}

// What begins, ends and fills texts is the tokenizer's, where the config does not say; and every token needs a row.
void fit_to_tokenizer(Json& config, const std::string& folder, int64_t vocab) {
  require(fs::is_directory(folder), Fault::Usage, "--tokenizer ", folder, " is no folder");
  const auto tokenizer = Tokenizer::load(folder);
  require(tokenizer->vocab_size() <= vocab, Fault::Usage, "vocab_size ", vocab, " is smaller than the ",
          tokenizer->vocab_size(), " tokens of --tokenizer ", folder,
          "; take another preset, or give --config with a larger vocab_size");
  const std::pair<const char*, std::optional<int32_t>> known[] = {
      {"bos_token_id", tokenizer->bos()}, {"eos_token_id", tokenizer->eos()}, {"pad_token_id", tokenizer->pad()}};
  for (const auto& [key, id] : known)
    if (id && (!config.contains(key) || config[key].is_null())) config[key] = *id;
}

int run_init(const InitOptions& o) {
  Json config = o.config.empty()             ? preset_config(o.preset)
                : fs::is_directory(o.config) ? read_model_config(o.config)
                                             : parse_json(read_file(o.config, 16 << 20), o.config, Fault::Model);
  const fs::path dir = o.output_dir;
  require(o.exist_ok || !fs::exists(dir / "config.json"), Fault::Usage, dir.string(),
          " already holds a checkpoint; choose another --output_dir or give --exist_ok true");
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";  // newer files and older ones
  std::string type = o.torch_dtype;
  if (type.empty())
    type = config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : "bfloat16";
  const auto dtype = parse_float_type(type);
  require(dtype.has_value(), Fault::Usage, "--torch_dtype '", type, "' is not known; use float32, bfloat16 or float16");
  config[key] = float_type_name(*dtype);
  const auto model = make_model(config, natural_head(config));
  const auto vocab = model->known_words();
  if (!o.tokenizer.empty()) fit_to_tokenizer(config, o.tokenizer, vocab);
  if (o.tokenizer.empty()) config["bos_token_id"] = 2022, config["eos_token_id"] = 2024, config["pad_token_id"] = 2022;
  require(!o.tokenizer.empty() || vocab >= 2048, Fault::Usage, "vocab_size ", vocab,
          " is smaller than the bundled tokenizer's 2048 tokens; give --tokenizer DIR");
  open_device("cpu");  // all threads
  make_writable_dir(dir);
  copy_tokenizer(o, dir);
  write_file_atomic(dir / "config.json", config.dump(2) + "\n");
  Json generation = Json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.contains(key)) generation[key] = config[key];
  write_file_atomic(dir / "generation_config.json", generation.dump(2) + "\n");

  // Those that see are written under the model's own names.
  const std::vector<DiskForm> forms =
      describe_model(config, natural_head(config)).seeing ? std::vector<DiskForm>() : disk_forms_of(config);
  const auto shapes = disk_shapes(*model, forms.empty() ? DiskForm() : forms.front());
  int64_t parameters = 0;
  for (const auto& t : shapes) {
    int64_t count = 1;
    for (const int64_t d : t.shape) count *= d;
    parameters += count;
  }
  const double deviation = config.value("initializer_range", 0.02);
  Progress progress("writing weights", static_cast<int64_t>(shapes.size()), {.unit = "tensor"});
  std::vector<SafetensorsWriter::Spec> tensors;
  const auto counts = [](const DiskShape& t) { return t.type == at::kLong; };
  for (const auto& t : shapes) tensors.push_back({t.name, counts(t) ? at::kLong : *dtype, t.shape});
  ShardsWriter writer(dir, tensors, o.max_shard_bytes);
  for (const auto& t : shapes) {
    writer.add(t.name, counts(t) ? experts_by_word(t.shape, model->shape().experts)
                                 : initial(t, static_cast<uint64_t>(o.common.seed), deviation));
    progress.advance();
  }
  writer.commit();
  progress.finish();
  std::printf("%s: %s, %.1f million parameters in %s\n", dir.string().c_str(),
              config["model_type"].get<std::string>().c_str(), static_cast<double>(parameters) / 1e6,
              float_type_name(*dtype));
  return 0;
}

const RegisterRunner<InitOptions> init("init", run_init);

}  // namespace
}  // namespace apus
