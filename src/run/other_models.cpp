// SPDX-License-Identifier: Apache-2.0
#include "run/other_models.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "models/layer_runner.h"
#include "run/rank_agreement.h"
#include "text/tokenizer.h"
#include "train/trainable.h"

namespace apus {
namespace fs = std::filesystem;
namespace {

// Its own checkpoint, or that of the run that is gone on with. Rules about the policy's parameters are not its own.
TrainRun options_of_trained(const OtherModel& asked, const TrainRun& o) {
  TrainRun own = o;
  if (asked.folder) own.model.model = *asked.folder;
  own.tuner.adapters.clear(), own.tuner.modules_to_save.clear(), own.tuner.trainable_token_indices.clear();
  own.tuner.freeze_parameters.clear(), own.tuner.trainable_parameters.clear(), own.tuner.freeze_parameters_ratio = 0;
  own.tuner.freeze_parameters_regex.reset(), own.tuner.trainable_parameters_regex.reset();
  if (!o.folder.resume_from_checkpoint.empty()) {
    const fs::path saved = fs::path(o.folder.resume_from_checkpoint) / asked.role;
    require(fs::is_directory(saved), Fault::Usage, "--resume_from_checkpoint ", o.folder.resume_from_checkpoint,
            " holds no folder ", asked.role, ": it is no checkpoint of this algorithm's training");
    own.folder.resume_from_checkpoint = saved;
  }
  return own;
}

// Frozen: its weights stay in the mapped files where the device allows it.
TunedModel load_frozen(const OtherModel& asked, const TrainRun& o, const TunedModel& policy, Mesh& mesh) {
  const fs::path dir = asked.folder ? *asked.folder : o.model.model;
  require(!is_adapter_dir(dir), Fault::Usage, asked.flag, " ", dir.string(),
          " holds an adapter: give the model that it was trained on, and this folder as --", asked.role, "_adapters");
  TunedModel out;
  out.base = dir, out.dtype = policy.dtype;
  const Json config = read_model_config(dir);
  out.model =
      make_model(asked.head == Head::Scalar ? score_config(config, {1, usual_problem(1)}, dir) : config, asked.head);
  const int64_t tokens = Tokenizer::load(o.model.model)->vocab_size(), known = out.model->known_words();
  require(known >= tokens, Fault::Usage, asked.flag, " ", dir.string(), " knows ", known,
          " tokens, and the tokenizer of ", o.model.model, " has ", tokens, ": it must read what the policy reads");
  out.model->place(mesh);
  LoadOptions options{.dtype = out.dtype, .device = mesh.device()};
  const std::string head = out.model->head_name() + ".weight";
  if (asked.head == Head::Scalar && !asked.adapter.empty())
    options.fresh = [&head](const std::string& name, const std::vector<int64_t>& shape) {
      return name == head ? at::zeros(shape, at::kFloat) : at::Tensor();  // the adapter brings it
    };
  const TensorFolder source(dir);
  const auto quantised = quantised_weights(config, o.quantise, dir);
  options.quantised = quantised.get();
  load_weights(*out.model, source, options);
  if (!asked.adapter.empty()) {
    out.adapter = load_adapter(*out.model, asked.adapter);
    const auto& own = out.adapter->saved_params;
    require(asked.head != Head::Scalar || std::find(own.begin(), own.end(), head) != own.end(), Fault::Usage,
            "the adapter ", asked.adapter, " holds no ", head, ": it is none of a reward model");
  }
  out.model->visit([](const std::string&, Param& p) { p.trainable = false; });
  log_info(asked.role, ": ", dir.string(), asked.adapter.empty() ? "" : " and the adapter " + asked.adapter);
  return out;
}

// LoRA on the checkpoint that the policy has: what neither changes is there once.
void share_frozen(Model& policy, Model& other) {
  std::map<std::string, at::Tensor> there;
  policy.visit([&](const std::string& name, Param& p) {
    if (!p.trainable && p.data.defined()) there[name] = p.data;
  });
  other.visit([&](const std::string& name, Param& p) {
    const auto same = there.find(name);
    if (p.trainable || same == there.end() || !p.data.defined()) return;
    if (same->second.sizes() == p.data.sizes() && same->second.scalar_type() == p.data.scalar_type())
      p.data = same->second;
  });
}

bool keeps_its_base(const TunedModel& model) { return model.adapter && model.adapter->taken_out.empty(); }

}  // namespace

OtherModels::OtherModels(const TrainRun& o, const TunedModel& policy, Mesh& mesh, World& world) {
  for (const OtherModel& asked : o.own.other_models()) {
    auto one = std::make_unique<One>(One{asked, o, {}});
    if (asked.trained) {
      one->options = options_of_trained(asked, o);
      one->tuned = load_tuned_model(one->options, mesh, asked.head);
      std::error_code code;
      if (keeps_its_base(policy) && keeps_its_base(one->tuned) && fs::equivalent(policy.base, one->tuned.base, code))
        share_frozen(*policy.model, *one->tuned.model);
      log_info(asked.role, ": ", one->tuned.base.string(), ", ",
               param_info(one->tuned.adapter ? "adapter" : "model", count_params(*one->tuned.model)));
    } else {
      one->tuned = load_frozen(asked, o, policy, mesh);
    }
    require_same_weights(*one->tuned.model, world, one->tuned.base);
    one->sharded = shard_model(*one->tuned.model, mesh, o.mesh.sharding());
    all_.push_back(std::move(one));
  }
}

std::map<std::string, std::vector<Model*>> OtherModels::by_role() const {
  std::map<std::string, std::vector<Model*>> out;
  for (const auto& one : all_) out[one->asked.role].push_back(one->tuned.model.get());
  return out;
}

std::map<std::string, Model*> OtherModels::trained() const {
  std::map<std::string, Model*> out;
  for (const auto& one : all_)
    if (one->asked.trained) out[one->asked.role + "."] = one->tuned.model.get();
  return out;
}

std::vector<NamedParam> OtherModels::params() const {
  std::vector<NamedParam> out;
  for (const auto& one : all_) {
    if (!one->asked.trained) continue;
    std::vector<NamedParam> own = trainable_params(*one->tuned.model);
    for (NamedParam& p : own) out.push_back({one->asked.role + "." + p.name, std::move(p.tensor)});
  }
  return out;
}

std::vector<std::pair<std::string, double>> OtherModels::learning_rates() const {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& one : all_)
    if (one->asked.learning_rate) out.emplace_back(one->asked.role + ".", *one->asked.learning_rate);
  return out;
}

std::vector<TrainedBeside> OtherModels::shared() const {
  std::vector<TrainedBeside> out;
  for (const auto& one : all_)
    if (one->asked.trained && one->sharded) out.push_back({one->asked.role, one->sharded.get()});
  return out;
}

void OtherModels::save(const fs::path& checkpoint) const {
  for (const auto& one : all_) {
    if (!one->asked.trained) continue;
    make_writable_dir(checkpoint / one->asked.role);
    one->tuned.save(checkpoint / one->asked.role, one->options);
  }
}

std::function<std::shared_ptr<void>()> own_passes(const TrainRun& o, const Model& policy, const Model* reference,
                                                  const OtherModels& others) {
  if (!algorithm_info(o.algorithm).asks_rows) return {};
  std::vector<const Model*> all = {&policy};
  if (reference) all.push_back(reference);
  for (const auto& [role, models] : others.by_role()) all.insert(all.end(), models.begin(), models.end());
  return [all] {
    auto held = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (const Model* model : all) held->push_back(model->runner()->alone());
    return held;
  };
}

}  // namespace apus
