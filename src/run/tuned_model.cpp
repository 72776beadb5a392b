// SPDX-License-Identifier: Apache-2.0
#include "run/tuned_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <set>

#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/random.h"
#include "checkpoint/block_expansion.h"
#include "checkpoint/gradient_init.h"
#include "checkpoint/names.h"
#include "checkpoint/vector_files.h"
#include "checkpoint/weights.h"
#include "cli/plan_spec.h"
#include "models/seeing_decoder.h"
#include "models/spec/config.h"
#include "models/spec/tuning_groups.h"
#include "run/shared_training.h"
#include "tensor/dtype.h"
#include "tensor/noise.h"
#include "text/tokenizer.h"
#include "train/trainable.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

FrozenGroups frozen_groups(const TrainRun& o) {
  return {.llm = o.tuner.freeze_llm, .vit = o.tuner.freeze_vit, .aligner = o.tuner.freeze_aligner};
}

// Of a model that sees, trained whole: the groups that stay as they are, but what --trainable_parameters names.
void freeze_groups(Model& model, const TrainRun& o) {
  const auto* sight = dynamic_cast<const SeeingDecoder*>(&model);
  require(sight || !o.tuner.freeze_llm, Fault::Usage, "--freeze_llm true: this model is its language model alone");
  if (!sight) return;
  model.visit([&](const std::string& name, Param& p) {
    const bool named = std::any_of(o.tuner.trainable_parameters.begin(), o.tuner.trainable_parameters.end(),
                                   [&](const std::string& beginning) { return name.starts_with(beginning); });
    if (!named && is_frozen(sight->seeing(), frozen_groups(o), name)) p.trainable = false;
  });
}

std::map<std::string, std::vector<int64_t>> token_rows(const TrainRun& o) {
  std::shared_ptr<const Tokenizer> tokenizer;  // where a token is given by its text
  return listed_token_rows(o.tuner.trainable_token_indices, [&](const std::string& token) {
    if (!tokenizer) tokenizer = Tokenizer::load(o.model.model);
    const auto id = tokenizer->id(token);
    require(id.has_value(), Fault::Usage, "--trainable_token_indices ", token, ": the tokenizer of ", o.model.model,
            " has no such token; --new_special_tokens adds some");
    return *id;
  });
}

LoraConfig lora_config(const TrainRun& o, Model& model) {
  LoraConfig c;
  c.base_model = fs::absolute(o.model.base_folder.empty() ? o.model.model : o.model.base_folder).lexically_normal();
  c.r = o.tuner.lora_rank, c.alpha = o.tuner.lora_alpha, c.dropout = o.tuner.lora_dropout,
  c.rslora = o.tuner.use_rslora, c.dora = o.tuner.use_dora;
  c.bias = o.tuner.lora_bias, c.init = o.tuner.init_weights;
  std::vector<std::string> layers = linear_modules(model);
  // PEFT takes the words gate_proj and up_proj for a wish for factors over the stacked experts.
  if (!o.tuner.target_parameters.empty()) std::erase_if(layers, [](const auto& name) { return expert_matrix(name); });
  c.target_modules = target_suffixes(o.tuner.target_modules, layers);
  const auto* sight = dynamic_cast<const SeeingDecoder*>(&model);
  if (sight && std::find(o.tuner.target_modules.begin(), o.tuner.target_modules.end(), "all-linear") !=
                   o.tuner.target_modules.end()) {
    c.target_regex = all_linear_expression(sight->seeing(), frozen_groups(o), linear_modules(model));
    require(o.tuner.target_regex || !c.target_regex.empty(), Fault::Usage,
            "--freeze_llm, --freeze_vit and --freeze_aligner leave nothing to train");
    c.target_modules.clear();
  }
  if (o.tuner.target_regex) c.target_regex = *o.tuner.target_regex, c.target_modules.clear();
  c.target_parameters = o.tuner.target_parameters, c.token_rows = token_rows(o);
  std::vector<std::string> modules;
  model.visit_modules([&](const std::string& name, Module&) { modules.push_back(name); });
  c.modules_to_save = saved_suffixes(o.tuner.modules_to_save, modules);
  if (model.head_kind() == Head::Scalar) {
    c.task_type = o.model.task_type == "token_cls" ? "TOKEN_CLS" : "SEQ_CLS";
    const auto saved = model.encoder() ? model.encoder()->head.saved : std::vector<std::string>{model.head_name()};
    c.modules_to_save.insert(c.modules_to_save.end(), saved.begin(), saved.end());
  }
  if (model.head_kind() == Head::None) c.task_type = "FEATURE_EXTRACTION";
  o.tuner.kinds.describe(o.tuner.tuner_type, c);
  if (c.kind == "ln_tuning" && !o.tuner.target_regex) {
    std::erase_if(modules, [&](const auto& m) { return sight && is_frozen(sight->seeing(), frozen_groups(o), m); });
    aim_at_norms(c, o.tuner.target_modules, modules, /*whole=*/sight);
  }
  if (c.kind == "prompt_tuning") {
    c.prompt.hidden = model.shape().hidden, c.prompt.heads = model.shape().heads,
    c.prompt.layers = model.shape().layers;
    if (!c.prompt.text.empty()) c.prompt.text_ids = Tokenizer::load(o.model.model)->encode(c.prompt.text, true);
  }
  if (c.kind == "ia3") c.feedforward_regex = scaled_inputs_expression(linear_modules(model));
  if (c.kind == "adapter")
    c.target_regex = feed_forward_expression(linear_modules(model)), c.width = model.shape().hidden;
  return c;
}

// The kind that the flags ask for, and what it drops while it is trained.
LoraConfig kind_asked_for(const TrainRun& o) {
  LoraConfig config{.dropout = o.tuner.lora_dropout};
  o.tuner.kinds.describe(o.tuner.tuner_type, config);
  return config;
}

void attach_adapter(TunedModel& out, const TrainRun& o) {
  const at::ScalarType wide = o.tuner.lora_dtype ? *parse_float_type(*o.tuner.lora_dtype) : at::kFloat;
  if (!o.tuner.adapters.empty()) {  // its shape is the adapter's, whatever the flags say
    const bool resumed = !o.folder.resume_from_checkpoint.empty();
    const LoraConfig asked = kind_asked_for(o);
    out.adapter = load_adapter(*out.model, resumed ? o.folder.resume_from_checkpoint : o.tuner.adapters[0], "default",
                               asked.dropout);
    require(out.adapter->config.kind == asked.kind, Fault::Usage, "--adapters ", o.tuner.adapters[0],
            " is of the kind ", out.adapter->config.kind, ": give --tuner_type ", out.adapter->config.kind);
    if (!resumed)
      log_info("training goes on from the adapter ", o.tuner.adapters[0], " (rank ", out.adapter->config.r, ")");
    return;
  }
  out.adapter = make_adapter(*out.model, lora_config(o, *out.model), static_cast<uint64_t>(o.common.seed), wide);
  const bool resumed = !o.folder.resume_from_checkpoint.empty();
  if (resumed && o.tuner.init_weights == "lora-ga")
    take_out_again(*out.model, *out.adapter, o.folder.resume_from_checkpoint);
  if (resumed) restore_adapter(*out.model, *out.adapter, o.folder.resume_from_checkpoint);
}

using FreshValues = std::function<at::Tensor(const std::string& name, const std::vector<int64_t>& shape)>;

struct AddedLayers {
  BlockExpansion blocks;
  std::string layer;  // the beginning of layers' names
};

std::optional<AddedLayers> growth_of(const TrainRun& o) {
  if (!o.tuner.grows()) return std::nullopt;
  const ModelFacts smaller = model_facts(read_model_config(o.model.model));
  return AddedLayers{grown_blocks(o.tuner, smaller), smaller.layer};
}

std::string named_layer(const AddedLayers& growth, int64_t layer) { return growth.layer + std::to_string(layer) + "."; }

// The smaller model's files have no values of the last layers of the larger one.
FreshValues zeros_beyond(const AddedLayers& growth) {
  return [growth](const std::string& name, const std::vector<int64_t>& shape) {
    const auto layers = std::ssize(growth.blocks.origin), there = layers - std::ssize(growth.blocks.added);
    for (int64_t i = there; i < layers; ++i)
      if (name.starts_with(named_layer(growth, i))) return at::zeros(shape);
    return at::Tensor();
  };
}

// Each layer's values were read into the place of its number: from the last one down they come into their own.
void copy_blocks(Model& model, const AddedLayers& growth) {
  std::map<std::string, Param*> params;
  model.visit([&](const std::string& name, Param& p) { params[name] = &p; });
  for (auto i = std::ssize(growth.blocks.origin); i-- > 0;) {
    const int64_t origin = growth.blocks.origin[static_cast<size_t>(i)];
    const std::string here = named_layer(growth, i), there = named_layer(growth, origin);
    for (auto at = params.lower_bound(here); origin != i && at != params.end() && at->first.starts_with(here); ++at) {
      Param &p = *at->second, &from = *params.at(there + at->first.substr(here.size()));
      const bool own = p.trainable || from.trainable;
      p.data = own ? from.data.clone() : from.data, p.mapped = !own && from.mapped;
    }
  }
}

// What the added layers give to the residual is 0 at first.
void empty_added_blocks(Model& model, const AddedLayers& growth) {
  at::NoGradGuard no_grad;
  for (const std::string& block : growth.blocks.added_names(growth.layer)) {
    int64_t ends = 0;
    model.visit([&](const std::string& name, Param& p) {
      if (!name.starts_with(block) || !ends_block(module_of(name))) return;
      if (p.data.defined()) p.data.zero_();
      ends += name.ends_with(".weight");
    });
    require(ends == 2, Fault::Usage,
            "--tuner_type llamapro: the layers of this model do not end in two matrices by "
            "whose names they are known: use --tuner_type lora or full");
  }
  log_info(growth.blocks.added.size(), " layers are added and trained, the ",
           growth.blocks.origin.size() - growth.blocks.added.size(), " others stay as they are");
}

// A new head: normal with the model's initializer_range, as HuggingFace begins one; biases are 0, norms' weights 1.
FreshValues fresh_score(const Model& model, const Json& config, uint64_t seed) {
  return [&model, range = Config(config).number("initializer_range", 0.02), seed](const std::string& name,
                                                                                  const std::vector<int64_t>& shape) {
    if (!model.is_of_head(name)) return at::Tensor();
    log_info("the checkpoint has no ", name, ": a new head is trained");
    if (shape.size() == 1) return name.ends_with(".bias") ? at::zeros(shape) : at::ones(shape);
    const std::string stream = name == model.head_name() + ".weight" ? "score head" : name;
    return normal_noise(shape, 0, range, mix(seed, stream_named(stream), 0));
  };
}

}  // namespace

Json score_config(Json config, const ScoreHead& head, const fs::path& dir) {
  const auto before = score_head_of(config);
  require(!before || before->labels == head.labels, Fault::Usage, "--model ", dir.string(), " has a head of ",
          before ? before->labels : 0, " labels, and one of ", head.labels,
          " is trained here: begin with the model it was made of");
  return with_score_head(std::move(config), head);
}

TunedModel load_tuned_model(const TrainRun& o, Mesh& mesh, Head head) {
  const c10::Device device = mesh.device();
  if (o.tuner.lora() && kind_asked_for(o).kind == "lora")
    check_lora_init(o.tuner.init_weights);  // before gigabytes are read
  TunedModel out;
  const bool resumed = !o.folder.resume_from_checkpoint.empty();
  out.base = resumed && !o.tuner.lora() ? fs::path(o.folder.resume_from_checkpoint) : fs::path(o.model.model);
  require(!resumed || o.tuner.lora() == is_adapter_dir(o.folder.resume_from_checkpoint), Fault::Usage,
          "--resume_from_checkpoint ", o.folder.resume_from_checkpoint,
          o.tuner.lora() ? " holds a whole model, not an adapter; was it trained with --tuner_type full?"
                         : " holds an adapter; was it trained with --tuner_type lora?");
  Json config = out.config = read_model_config(out.base);
  const std::optional<AddedLayers> growth = growth_of(o);
  if (growth && !resumed) config = out.config = growth->blocks.config(config);
  if (!o.tuner.lora()) out.side_files = SideFiles(out.base);
  if (head == Head::Scalar) config = score_config(std::move(config), o.own.score_head(), out.base);
  std::string note;
  out.dtype = choose_dtype(o.model.torch_dtype.value_or(""), config, device, &note);
  if (!note.empty()) log_warning(note);
  if (out.dtype == at::kHalf) {  // gradients of f16 weights underflow without loss scaling
    out.dtype = kind_of(device).supports(at::kBFloat16) ? at::kBFloat16 : at::kFloat;
    log_warning("float16 weights are trained as ", float_type_name(out.dtype));
  }
  out.model = make_model(config, head, !o.own.needs().ahead.empty());
  place_on(*out.model, mesh, o.mesh);
  if (const double share = Config(config).number("attention_dropout", 0); share > 0)
    log_warning("config.json: attention_dropout ", share,
                " is not applied: attention drops nothing while it is trained");
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob", "dropout"})
    if (const double share = out.model->encoder() ? Config(config).number(key, 0) : 0; share > 0)
      log_warning("config.json: ", key, " ", share, " is not applied: the model drops nothing while it is trained");
  if (const double share = Config(config).number("residual_dropout", 0); share > 0)
    fail(Fault::Model, out.base.string(), ": config.json says residual_dropout ", share,
         ", which is not applied here; to train without it, set it to 0 there");
  if (o.loop.fp8_format)
    log_warning("--fp8_format: this program multiplies FP8 numbers in ", float_type_name(out.dtype),
                ", which holds them exactly: losses are those of training in FP8, time and memory are not");
  if (growth)
    choose_trainable(*out.model, {.ratio = 1, .frozen = {}, .trained = growth->blocks.added_names(growth->layer)});
  else if (!o.tuner.lora())
    choose_trainable(*out.model, {.ratio = o.tuner.freeze_parameters_ratio,
                                  .frozen = o.tuner.freeze_parameters,
                                  .trained = o.tuner.trainable_parameters,
                                  .frozen_regex = o.tuner.freeze_parameters_regex,
                                  .trained_regex = o.tuner.trainable_parameters_regex});
  if (!o.tuner.lora()) freeze_groups(*out.model, o);
  std::set<std::string> trained;
  if (!o.tuner.lora())
    out.model->visit([&](const std::string& name, Param& p) {
      if (p.trainable) trained.insert(name);
    });
  const auto source = std::make_shared<const TensorFolder>(out.base);
  const auto quantised = quantised_weights(config, o.quantise, out.base);
  if (quantised && !o.tuner.lora())
    log_info("the weights of ", out.base.string(), " are quantised; all of them are trained, as ",
             float_type_name(out.dtype), ", and saved so");
  UnreadTensors unread = load_weights(
      *out.model, *source,
      {.dtype = out.dtype,
       .device = o.mesh.sharding().on_host && mesh.size(Axis::DpShard) > 1 ? c10::Device(c10::kCPU) : device,
       .own = [&](const std::string& name) { return trained.count(name) > 0; },
       .fresh = growth && !resumed     ? zeros_beyond(*growth)
                : head == Head::Scalar ? fresh_score(*out.model, config, static_cast<uint64_t>(o.common.seed))
                                       : FreshValues(),
       .quantised = quantised.get(),
       .made_plain = !o.tuner.lora()});
  if (growth && !resumed) copy_blocks(*out.model, *growth), empty_added_blocks(*out.model, *growth);
  if (o.tuner.lora()) {
    attach_adapter(out, o);
  } else if (head != Head::Scalar && !quantised) {
    // Copies of embedding and head beside a trained head that guesses would be those of before.
    if (out.model->guess_head())
      std::erase_if(unread.ahead, [](const std::string& name) {
        return name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight");
      });
    // Whoever runs the others elsewhere finds them again.
    for (auto* names : {&unread.ahead, &unread.speech, &unread.heads})
      out.carried.names.insert(out.carried.names.end(), names->begin(), names->end());
    if (!out.carried.names.empty()) out.carried.source = source;
  }
  return out;
}

std::optional<Reference> TunedModel::reference() const {
  if (!adapter || !adapter->saved_params.empty() || !adapter->taken_out.empty()) return std::nullopt;
  return Reference::without_adapters(*model);
}

std::vector<std::pair<std::string, double>> TunedModel::learning_rates(const TrainRun& o) const {
  if (!o.tuner.vit_lr && !o.tuner.aligner_lr) return {};
  const auto* sight = dynamic_cast<const SeeingDecoder*>(model.get());
  require(sight, Fault::Usage, o.tuner.vit_lr ? "--vit_lr" : "--aligner_lr",
          ": this model is its language model alone");
  return rates_of_groups(sight->seeing(), o.lr(), o.tuner.vit_lr, o.tuner.aligner_lr);
}

void TunedModel::save(const fs::path& dir, const TrainRun& o) const {
  const bool first = model->mesh()->layout().first();
  // The first holds all there is.
  if (!first && model->mesh()->size({Axis::Pp, Axis::DpShard, Axis::Tp, Axis::Ep}) == 1) return;
  if (first) write_file_atomic(dir / "args.json", o.all.dump(2) + "\n");
  if (adapter) {
    const Json additional = {{"lora_dtype", o.tuner.lora_dtype ? Json(*o.tuner.lora_dtype) : Json()},
                             {"lorap_lr_ratio", o.tuner.lorap_lr_ratio ? Json(*o.tuner.lorap_lr_ratio) : Json()},
                             {"lorap_emb_lr", 1e-6}};
    return save_adapter(*model, *adapter, dir, additional);
  }
  save_weights(*model, dir, o.folder.max_shard_bytes, dtype, carried);
  if (!first) return;
  Json saved = config;
  saved.erase("quantization_config");  // what was packed has been taken out
  if (model->head_kind() == Head::Scalar) saved = score_config(std::move(saved), o.own.score_head(), base);
  saved[saved.contains("dtype") && !saved.contains("torch_dtype") ? "dtype" : "torch_dtype"] = float_type_name(dtype);
  write_file_atomic(dir / "config.json", saved.dump(2) + "\n");
  side_files.write(dir);
  if (model->head_kind() != Head::None) return;
  VectorForm form = read_vector_files(base).value_or(VectorForm());
  form.pooling = pooling_named(o.all.value("pooling", "last")), form.width = model->shape().hidden;
  write_vector_files(dir, form);
}

}  // namespace apus
