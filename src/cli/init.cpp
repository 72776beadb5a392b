// SPDX-License-Identifier: Apache-2.0
#include "cli/init.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "base/sizes.h"
#include "cli/command.h"
#include "cli/rehearsal.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"

namespace apus {

void InitOptions::fields(OptionTable& v) {
  v.group("New checkpoint");
  v("output_dir", output_dir, "folder to write").common().required();
  v("preset", preset, "a known shape: " + join(preset_names())).common();
  v("config", config, "a config.json, or a folder that holds one, instead of a preset").common().alias("model");
  v("tokenizer", tokenizer, "folder with tokenizer files to copy")
      .common()
      .shown_default("a small one that comes with Apus");
  v("torch_dtype", torch_dtype, "number format of the weights")
      .choices({"float32", "bfloat16", "float16"})
      .shown_default("the config's; bfloat16 for presets");
  v("max_shard_size", max_shard_size, "largest weight file: 500MB, 5GB, ...");
  v("exist_ok", exist_ok, "write into a folder that is not empty");
  v.no_effect({"safe_serialization"}, "weights are always written as safetensors");
  common.fields(v);
}

void InitOptions::resolve(OptionTable&) { max_shard_bytes = parse_bytes(max_shard_size, "--max_shard_size"); }

void InitOptions::check() const {
  require(preset.empty() != config.empty(), Fault::Usage, "give either --preset NAME or --config config.json");
  if (!preset.empty()) preset_config(preset);  // throws for an unknown name
  std::error_code code;
  const bool used = std::filesystem::exists(output_dir, code) && !std::filesystem::is_empty(output_dir, code);
  require(!used || exist_ok, Fault::Usage, "--output_dir ", output_dir,
          " is there and not empty; choose another, or give --exist_ok true");
}

void InitOptions::rehearse(Rehearsal& r) const {
  std::filesystem::path file = config;
  if (std::filesystem::is_directory(file)) file /= "config.json";
  const Json json =
      config.empty() ? preset_config(preset) : parse_json(read_file(file, 16 << 20), file.string(), Fault::Model);
  const ModelFacts facts = model_facts(json);
  r.right("config", str(facts.type, ", ", facts.layers, " layers of ", facts.hidden, ", ", facts.parameters() / 1000000,
                        " M parameters"));
  if (!tokenizer.empty()) r.tokenizer(tokenizer);
  r.output(output_dir, facts.parameters() * (torch_dtype == "float32" ? 4 : 2));
}

namespace {
int run(const InitOptions& options) { return run_heavy("init", &options); }
const RegisterCommand<InitOptions> init_command(
    {.name = "init",
     .group = "Model",
     .summary = "make a checkpoint with random weights from a preset or a config.json",
     .examples = {"init --preset tiny --output_dir DIR",
                  "init --config config.json --tokenizer DIR --output_dir DIR --seed 1"},
     .afterword = [] { return "Families, by the model_type of their config.json\n" + family_table(); }},
    run);
}  // namespace

}  // namespace apus
