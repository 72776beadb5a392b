// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/adapter_card.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/attach.h"
#include "checkpoint/file_names.h"
#include "checkpoint/names.h"
#include "checkpoint/tables.h"
#include "checkpoint/unread_tensors.h"
#include "dist/mesh.h"
#include "nn/parts.h"
#include "nn/vera.h"
#include "ops/quantised.h"
#include "tensor/safetensors.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

const std::string kWeights = single_file(kAdapterWeights);

void each_lora(Module& model, const std::string& adapter,
               const std::function<void(const std::string&, Adaptable&, Lora&)>& f) {
  each_delta(model, adapter, [&](const std::string& name, Adaptable& layer, TrainedDelta& delta) {
    if (auto* lora = dynamic_cast<Lora*>(&delta)) f(name, layer, *lora);
  });
}

// Factors change one of two tied tensors only, as in PEFT.
void note_tied(Model& model, const std::vector<std::string>& attached) {
  model.visit([&](const std::string& name, Param& p) {
    if (p.tied.empty()) return;
    std::vector<std::string> changed;
    for (const std::string& module : {module_of(name), module_of(p.tied)})
      if (std::find(attached.begin(), attached.end(), module) != attached.end()) changed.push_back(module);
    if (!changed.empty())
      log_warning(module_of(name), " and ", module_of(p.tied), " are one tensor in this model; the factors change ",
                  changed.size() == 1 ? changed[0] + " alone" : "each for itself",
                  ", and merging makes two tensors of them");
  });
}

// Base parameters that the adapter trains whole, or that its file holds, get their own memory, which unties tied ones.
std::vector<std::string> own_saved_params(Model& model, const LoraConfig& config,
                                          const std::set<std::string>& in_file = {}) {
  std::vector<std::string> names;
  std::vector<Param*> params;
  model.visit([&](const std::string& name, Param& p) {
    const bool bias = config.bias == "all" && name.ends_with(".bias") && !name.ends_with(".lora_B.bias");
    if (!bias && !config.saves(module_of(name)) && !in_file.count(name)) return;
    names.push_back(name), params.push_back(&p);
  });
  for (const std::string& wanted : config.modules_to_save) {
    // PEFT lists names that other models have, too.
    const auto saved = [&](const auto& n) { return LoraConfig{.modules_to_save = {wanted}}.saves(module_of(n)); };
    const bool found = !in_file.empty() || std::any_of(names.begin(), names.end(), saved);
    require(found, Fault::Usage, "--modules_to_save ", wanted,
            ": the model has no module of that name with parameters");
  }
  for (Param* p : params) {
    p->data = p->data.detach().clone();
    // A tied head, of which another stage of a pipeline is to have its own.
    if (is_elsewhere(*p, model.mesh())) p->data = p->data.narrow(0, 0, 0).clone();
    p->tied.clear(), p->mapped = false, p->trainable = true;
  }
  return names;
}

// Gate and up of an expert have their first factor in common.
void share_stacked_factors(Model& model, const Adapter& adapter) {
  std::map<std::string, std::pair<std::string, Param*>> first;
  each_lora(model, adapter.name, [&](const std::string& module, Adaptable&, Lora& lora) {
    if (!adapter.config.stacks(module)) return;
    const ExpertMatrix matrix = *expert_matrix(module);
    const auto [it, alone] = first.emplace(str(matrix.parameter(), ".", matrix.expert), std::pair{module, &lora.a()});
    if (alone) return;
    lora.a().data = it->second.second->data;
    lora.a().tied = str(it->second.first, ".", adapter.name, ".lora_A.weight");
  });
}

// What target_parameters asks of a fresh adapter.
void check_stacked(Model& model, const LoraConfig& config) {
  if (config.target_parameters.empty()) return;
  std::set<std::string> stacks;
  for (const std::string& module : linear_modules(model))
    if (const auto matrix = expert_matrix(module)) stacks.insert(matrix->parameter());
  for (const std::string& wanted : config.target_parameters)
    require(std::any_of(stacks.begin(), stacks.end(),
                        [&](const std::string& name) { return name == wanted || name.ends_with("." + wanted); }),
            Fault::Usage, "--target_parameters ", wanted, ": ",
            stacks.empty() ? std::string("this model has no experts that factors can be laid over")
                           : "the model has no such experts; it has, for one, " + *stacks.begin());
  require(config.dropout == 0 && !config.dora && !config.lora_bias && !init_changes_weight(config.init), Fault::Usage,
          "--target_parameters goes with --lora_dropout 0 and --init_weights true, false or gaussian, without DoRA");
}

void freeze(Model& model) {
  model.visit([](const std::string&, Param& p) { p.trainable = false; });
}

// Of any of its parameters: a layer that was packed for inference may have let go of its weight.
at::Device device_of(Model& model) {
  at::Device device(at::kCPU);
  model.visit([&](const std::string&, Param& p) {
    if (p.data.defined()) device = p.data.device();
  });
  return device;
}

// Of a layer's factors: the device of its weight, which of an expert in a stack that ranks share out is not there.
at::TensorOptions factor_options(Adaptable& layer, Model& model, at::ScalarType type) {
  const at::Tensor& weight = layer.weight().data;
  return at::TensorOptions().dtype(type).device(weight.defined() ? weight.device() : device_of(model));
}
}  // namespace

std::vector<std::string> linear_modules(Module& model) {
  std::vector<std::string> names;
  each_adaptable(model, [&](const std::string& name, Adaptable& layer) {
    if (!layer.sides().looks_up) names.push_back(name);
  });
  return names;
}

namespace {

// PEFT's name for a parameter that is saved whole: that of a layer with factors has a part more.
std::string saved_name(Model& model, const Adapter& adapter, const std::string& parameter) {
  const std::string module = module_of(parameter);
  bool has_factors = false;
  each_delta(model, adapter.name,
             [&](const std::string& name, Adaptable&, TrainedDelta&) { has_factors |= name == module; });
  return kAdapterPrefix + (has_factors ? module + ".base_layer" + parameter.substr(module.size()) : parameter);
}

// The base's own parameters in an adapter's file, by the model's names: the names in the file. PEFT adds the table of
// an embedding with factors, which is no part of the adapter: it is left out here.
std::map<std::string, std::string> saved_in(const AdapterFile& file, const LoraConfig& config) {
  const std::string own = "." + adapter_prefix(config);
  std::map<std::string, std::string> all;
  for (const auto& [name, entry] : file.entries()) {
    if (!name.starts_with(kAdapterPrefix) || name.find(own) != std::string::npos ||
        name.ends_with(".base_layer.weight") || name.ends_with(".trainable_tokens_delta"))
      continue;
    all[without_base_layer(name.substr(std::string(kAdapterPrefix).size()))] = name;
  }
  return all;
}

std::set<std::string> keys_of(const std::map<std::string, std::string>& map) {
  std::set<std::string> keys;
  for (const auto& [key, value] : map) keys.insert(key);
  return keys;
}

void check_init(const LoraConfig& config) {
  if (config.kind == "lora") return check_lora_init(config.init);
  if (config.kind == "prompt_tuning") return;  // a choice of the flag
  require(config.init == "true" || config.init == "false", Fault::Usage, "--init_weights ", config.init, " with ",
          adapter_title(config), " is not available; possible: true, false");
}
}  // namespace

Adapter make_adapter(Model& model, LoraConfig config, uint64_t seed, at::ScalarType wide, const std::string& name) {
  at::NoGradGuard no_grad;
  check_init(config);
  const bool changes = init_changes_weight(config.init);
  require(!changes || !config.dora, Fault::Usage, "--init_weights ", config.init,
          " with DoRA is not available; use --init_weights true");
  require(config.bias == "none" || config.bias == "all", Fault::Usage, "--lora_bias ", config.bias,
          " is not available; possible: none, all");
  freeze(model);
  Adapter adapter{.name = name, .config = std::move(config), .saved_params = {}, .taken_out = {}};
  check_stacked(model, adapter.config);
  const auto attached = attach_changes(model, adapter.config, name);
  const bool whole = adapter.config.kind == "ln_tuning";
  require(whole || !attached.empty(), Fault::Usage, "no linear layer of this model is meant by target_modules ",
          adapter.config.target_regex.empty() ? join(adapter.config.target_modules) : adapter.config.target_regex,
          "; the model has ", join(all_linear_suffixes(linear_modules(model))));
  for (const std::string& wanted : adapter.config.target_modules)
    if (!whole && std::none_of(attached.begin(), attached.end(), [&](const std::string& module) {
          return LoraConfig{.target_modules = {wanted}}.targets(module);
        }))
      log_warning("target_modules ", wanted, ": the model has no layer of that name; it has ",
                  join(all_linear_suffixes(linear_modules(model))));
  if (adapter.config.kind != "prompt_tuning") note_tied(model, attached);
  each_delta(model, name, [&](const std::string& module, Adaptable& layer, TrainedDelta& delta) {
    const bool taken = changes && !layer.sides().looks_up;
    Param& weight = layer.weight();
    const bool cut = is_cut(weight, model.mesh());
    require(!taken || !ops::is_quantised(weight.data), Fault::Usage, "--init_weights ", adapter.config.init,
            " changes the base's weights, and that of ", module, " is quantised; use --init_weights true");
    require((!cut && weight.data.defined()) || !taken, Fault::Usage, "the weight of ", module,
            " is shared out over several ranks, but --init_weights ", adapter.config.init,
            " changes all of it; use --init_weights true, or ranks that each hold the whole model");
    require(weight.data.defined() || !delta.looks_at_weight(), Fault::Usage, adapter_title(adapter.config), " on ",
            module,
            ", an expert whose weight is shared out over several ranks, is not available; leave experts out of "
            "--target_modules, or use --deepspeed zero2");
    if (taken) layer.put_weight(weight.data.clone());
    const at::Tensor part = weight.data;
    if (cut && delta.looks_at_weight()) weight.data = gathered(weight, model.mesh());  // for the lengths of its rows
    delta.begin(layer, adapter.config.init, seed, factor_options(layer, model, wide));
    if (cut) weight.data = part;
    delta.visit([&](const std::string&, Param& p) {  // alike on all ranks, which keep their parts
      if (is_cut(p, model.mesh())) p.data = own_part(p.data, p).clone();
    });
    if (!taken) return;
    auto& lora = dynamic_cast<Lora&>(delta);
    adapter.taken_out[module] = {lora.a().data.clone(), lora.b().data.clone()};
  });
  share_stacked_factors(model, adapter);
  adapter.saved_params = own_saved_params(model, adapter.config);
  require(!whole || !adapter.saved_params.empty(), Fault::Usage, "no module of this model is meant by target_modules ",
          adapter.config.target_regex.empty() ? join(adapter.config.target_modules) : adapter.config.target_regex);
  attach_token_rows(model, adapter.config, name, wide);
  return adapter;
}

Adapter load_adapter(Model& model, const fs::path& dir, const std::string& name, double dropout) {
  at::NoGradGuard no_grad;
  Adapter adapter{.name = name, .config = read_adapter_config(dir), .saved_params = {}, .taken_out = {}};
  adapter.config.dropout = dropout;
  const fs::path weights = adapter_folder(dir) / kWeights;
  require(fs::exists(weights), Fault::Model, dir.string(), " holds no ", kWeights,
          "; adapters in pickles (adapter_model.bin) are not read");
  const AdapterFile file(weights, adapter.config);
  file.complete(adapter.config);
  freeze(model);
  attach_changes(model, adapter.config, name, &file);
  const auto saved = saved_in(file, adapter.config);
  adapter.saved_params = own_saved_params(model, adapter.config, keys_of(saved));
  attach_token_rows(model, adapter.config, name, at::kFloat);

  // What the model expects, by the file's names.
  std::map<std::string, std::pair<Param*, at::TensorOptions>> expected;
  std::map<std::string, Param*> tables;  // the base's own, which PEFT saves beside factors on them
  const at::Device one = device_of(model);
  each_delta(model, name, [&](const std::string& module, Adaptable&, TrainedDelta& delta) {
    const auto wide = at::TensorOptions().dtype(at::kFloat).device(model.devices() ? model.device_of(module) : one);
    delta.visit(
        [&](const std::string& n, Param& p) {
          expected[n] = {&p, wide};
        },
        name_in_file(adapter.config, module));
  });
  each_token_rows(model, name, [&](const std::string& module, Adaptable&, TokenRows& rows) {
    rows.visit([&](const std::string& n, Param& p) { expected[n] = {&p, p.data.options()}; }, kAdapterPrefix + module);
  });
  model.visit([&](const std::string& n, Param& p) {
    const bool own =
        std::find(adapter.saved_params.begin(), adapter.saved_params.end(), n) != adapter.saved_params.end();
    if (own) expected[saved.count(n) ? saved.at(n) : kAdapterPrefix + n] = {&p, p.data.options()};
    const std::string table = kAdapterPrefix + module_of(n) + ".base_layer.weight";
    if (!own && file.entries().count(table) && kAdapterPrefix + n == without_base_layer(table)) tables[table] = &p;
  });
  for (const auto& [n, p] : tables) expected[n] = {p, p->data.defined() ? p->data.options() : at::TensorOptions()};
  std::vector<std::string> wrong;
  const auto compare = [&](const std::string& n, const std::vector<int64_t>& shape) {
    const auto found = file.entries().find(n);
    if (found == file.entries().end())
      wrong.push_back(n + " is missing in the adapter");
    else if (found->second.shape != shape)
      wrong.push_back(apus::str(n, " is ", at::IntArrayRef(found->second.shape), " in the adapter, the model needs ",
                                at::IntArrayRef(shape)));
  };
  for (const auto& [n, want] : expected) compare(n, want.first->full);
  int64_t ahead = 0;  // of the head that guesses, which this model was made without
  for (const auto& [n, entry] : file.entries()) {
    if (expected.count(n)) continue;
    const bool of_head = !model.guess_head() && n.starts_with(kAdapterPrefix) &&
                         guesses_ahead(model, n.substr(std::string(kAdapterPrefix).size()));
    if (of_head)
      ++ahead;
    else
      wrong.push_back(n + " has no place in this model");
  }
  if (ahead > 0)
    log_info("the adapter's ", ahead,
             " tensors of the head that guesses tokens ahead are not read: the model has it not");
  const size_t total = wrong.size();
  if (wrong.size() > 8) wrong.resize(8), wrong.push_back(str("and ", total - 8, " more"));
  require(wrong.empty(), Fault::Model, "the adapter ", dir.string(),
          " was made for another model (its base: ", adapter.config.base_model, "): ", join(wrong, "; "));
  for (const auto& [n, p] : tables) {
    put_table(model, *p, file.tensor(n));
    expected.erase(n);
  }
  for (auto& [n, want] : expected) want.first->data = own_part(file.tensor(n), *want.first).to(want.second).clone();
  share_stacked_factors(model, adapter);
  share_token_rows(model, name);
  return adapter;
}

bool changes_base(const fs::path& dir) {
  const LoraConfig config = read_adapter_config(dir);
  const fs::path file = adapter_folder(dir) / kWeights;
  if (fs::exists(file) && !saved_in(AdapterFile(file, config), config).empty()) return true;
  return !config.modules_to_save.empty() || !config.token_rows.empty() || config.bias != "none";
}

void load_adapter_beside(Model& model, const fs::path& dir, const std::string& name, at::ScalarType type,
                         const ReadWeight& read) {
  at::NoGradGuard no_grad;
  require(!changes_base(dir), Fault::Usage, "the adapter ", dir.string(),
          " trained parameters of the base itself (modules_to_save, trainable_token_indices or biases), so that it "
          "cannot share the model with others; serve it alone, or merge it by `apus export --merge_lora true`");
  try {
    load_adapter(model, dir, name);
    settle_adapter(model, name, type, read);
  } catch (...) {
    detach_adapter(model, name);
    throw;
  }
}

void settle_adapter(Model& model, const std::string& name, at::ScalarType type, const ReadWeight& read) {
  at::NoGradGuard no_grad;
  each_delta(model, name, [&](const std::string& module, Adaptable& layer, TrainedDelta& delta) {
    const at::Tensor& here = layer.weight().data;
    const bool needs = delta.looks_at_weight() && !here.defined();
    delta.settle(!needs ? here : read(module + ".weight").to(device_of(model)).to(type), type);
    require(!needs || !delta.looks_at_weight(), Fault::Usage, "the adapter '", name, "' multiplies by the weight of ",
            module, " itself, which is packed here: merge it first (apus merge-lora)");
  });
}

void detach_adapter(Model& model, const std::string& name) {
  each_adaptable(model, [&](const std::string&, Adaptable& layer) { layer.detach(name); });
}

void restore_adapter(Model& model, Adapter& adapter, const fs::path& dir) {
  at::NoGradGuard no_grad;
  const AdapterFile file(adapter_folder(dir) / kWeights, adapter.config);
  const auto put = [&](const std::string& name, Param& p) {
    require(file.entries().count(name), Fault::Usage, dir.string(), ": ", name,
            " is missing; were the flags of the adapter changed?");
    at::Tensor saved = file.tensor(name);
    // A converted PiSSA adapter holds the trained factors first, the taken-out ones behind.
    if (!adapter.taken_out.empty() && name.ends_with("lora_A.weight")) saved = saved.narrow(0, 0, p.full[0]);
    if (!adapter.taken_out.empty() && name.ends_with("lora_B.weight")) saved = saved.narrow(1, 0, p.full[1]);
    require(saved.sizes() == at::IntArrayRef(p.full), Fault::Usage, dir.string(), ": ", name,
            " has another shape than this run's; was --lora_rank changed?");
    p.data = own_part(saved, p).to(p.data.options()).clone();
  };
  each_delta(model, adapter.name, [&](const std::string& module, Adaptable&, TrainedDelta& delta) {
    delta.visit(put, name_in_file(adapter.config, module));
    if (auto* vera = dynamic_cast<Vera*>(&delta))
      if (const auto shared = file.shared_matrices()) vera->shared().put(shared->first, shared->second);
  });
  each_token_rows(model, adapter.name, [&](const std::string& module, Adaptable&, TokenRows& rows) {
    rows.visit(put, kAdapterPrefix + module);
  });
  model.visit([&](const std::string& n, Param& p) {
    if (std::find(adapter.saved_params.begin(), adapter.saved_params.end(), n) != adapter.saved_params.end())
      put(saved_name(model, adapter, n), p);
  });
  share_stacked_factors(model, adapter);
  share_token_rows(model, adapter.name);
}

void save_adapter(Model& model, const Adapter& adapter, const fs::path& dir, const Json& additional) {
  at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  LoraConfig config = adapter.config;
  std::map<std::string, at::Tensor> shared;
  each_delta(model, adapter.name, [&](const std::string& module, Adaptable&, TrainedDelta& delta) {
    if (auto* vera = dynamic_cast<Vera*>(&delta); vera && config.vera.saves)
      std::tie(shared[kSharedA], shared[kSharedB]) = vera->shared().on(at::kCPU);
    const auto taken = adapter.taken_out.find(module);
    delta.visit(
        [&](const std::string& n, Param& p) {
          at::Tensor value = gathered(p, model.mesh());
          // W - s B0 A0 + s B A = W + s [B, B0] [A; -A0]
          if (taken != adapter.taken_out.end() && n.ends_with("lora_A.weight"))
            value = at::cat({value, taken->second.first.neg()}, 0);
          if (taken != adapter.taken_out.end() && n.ends_with("lora_B.weight"))
            value = at::cat({value, taken->second.second}, 1);
          tensors.emplace_back(n, value);
        },
        name_in_file(config, module));
  });
  each_token_rows(model, adapter.name, [&](const std::string& module, Adaptable&, TokenRows& rows) {
    rows.visit([&](const std::string& n, Param& p) { tensors.emplace_back(n, gathered(p, model.mesh())); },
               kAdapterPrefix + module);
  });
  if (!adapter.taken_out.empty()) {  // twice the rank with the same scale
    const double grow = config.rslora ? std::sqrt(2.0) : 2.0;
    config.r *= 2, config.alpha *= grow, config.init = "true";
    for (auto& [key, rank] : config.rank_pattern) rank *= 2;
    for (auto& [key, alpha] : config.alpha_pattern) alpha *= grow;
  }
  model.visit([&](const std::string& n, Param& p) {
    if (std::find(adapter.saved_params.begin(), adapter.saved_params.end(), n) != adapter.saved_params.end())
      tensors.emplace_back(saved_name(model, adapter, n), gathered(p, model.mesh()));
  });
  if (model.mesh() && !model.mesh()->layout().first()) return;
  tensors.insert(tensors.end(), shared.begin(), shared.end());
  stack_factors(tensors, config), name_norms(tensors, config);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const fs::path files = adapter_folder(dir, config);
  fs::create_directories(files);
  write_safetensors(files / kWeights, tensors);
  write_file_atomic(files / kAdapterConfigFile, adapter_config_json(config).dump(2));
  if (config.kind == "adapter") return write_file_atomic(dir / "configuration.json", "{}");  // as ms-swift leaves it
  write_file_atomic(dir / "README.md", adapter_card(config));
  if (additional.is_object()) write_file_atomic(dir / kAdapterExtrasFile, additional.dump(2));
}

void merge_attached(Model& model, const Adapter& adapter) {
  at::NoGradGuard no_grad;
  merge_token_rows(model, adapter.name);
  std::set<std::string> merged;
  each_delta(model, adapter.name, [&](const std::string& module, Adaptable& layer, TrainedDelta& delta) {
    const at::Tensor weight = layer.weight().data;
    require(!ops::is_quantised(weight), Fault::Usage, "an adapter cannot be merged into ", module,
            ", whose weight is quantised; merge it into the unquantised model (--model)");
    layer.put_weight(delta.merged(weight).to(weight.scalar_type()));
    if (delta.changes_bias()) {
      require(layer.bias(), Fault::Model, module, kNoBias);
      layer.bias()->data = delta.merged_bias(layer.bias()->data).to(layer.bias()->data.scalar_type());
    }
    layer.weight().tied.clear();
    layer.detach(adapter.name);
    merged.insert(module + ".weight");
  });
  model.visit([&](const std::string&, Param& p) {
    if (merged.count(p.tied)) p.tied.clear();  // it keeps the tensor as it was
  });
}

}  // namespace apus
