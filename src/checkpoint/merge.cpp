// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/adapter.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/file_names.h"
#include "checkpoint/make_delta.h"
#include "checkpoint/names.h"
#include "checkpoint/shards.h"
#include "checkpoint/side_files.h"
#include "checkpoint/state.h"
#include "checkpoint/vector_files.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"
#include "tensor/safetensors.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kHead = "lm_head.weight";

// A matrix that all of the family's files hold turned over.
bool stands_turned(const std::vector<DiskForm>& forms, const std::string& name, const std::vector<int64_t>& shape) {
  return forms.size() == 1 && shape.size() == 2 && forms[0].is_transposed(name);
}

// One adapter's changes, by the base's tensor names.
class Changes {
 public:
  // `score`: the module of a head of numbers, which only the adapter may have.
  Changes(const MergePart& part, const TensorFolder& base, const std::vector<DiskForm>& forms, std::string score)
      : dir_(part.adapter),
        weight_(part.weight),
        config_(read_adapter_config(part.adapter)),
        forms_(forms),
        score_(std::move(score)) {
    const bool prompt = config_.kind == "prompt_tuning";
    require(config_.kind != "adapter" && !prompt, Fault::Usage, part.adapter.string(), " holds ",
            prompt ? "a trained prompt, which is" : "bottlenecks behind layers, which are",
            " no change of a weight and cannot be merged: use it as it is "
            "(--adapters)");
    const fs::path path = part.adapter / single_file(kAdapterWeights);
    require(fs::exists(path), Fault::Model, part.adapter.string(), " holds no ", path.filename().string());
    file_ = std::make_shared<AdapterFile>(path, config_);
    file_->complete(config_);
    std::vector<std::string> strangers;
    for (const auto& [name, entry] : file_->entries()) {
      const auto [target, what] = meaning(name, base);
      require(!target.empty() || what != "shift", Fault::Model, dir_.string(), ": the layer of ", name, kNoBias);
      const bool rows_of_tied = what == "rows" && !base.find(kHead);  // the head shares those of the table
      if (target.empty() || (rows_of_tied && target == kHead)) strangers.push_back(name);
      parts_[target][what] = name;
      if (rows_of_tied) parts_[kHead][what] = name;
    }
    if (strangers.size() > 8) strangers.resize(8), strangers.push_back("...");
    require(strangers.empty(), Fault::Model, "the adapter ", dir_.string(),
            " was made for another model (its base: ", config_.base_model, "): nothing in it is called ",
            join(strangers, ", "));
    if (config_.kind != "lora") make_deltas(base);
    for (const auto& [target, parts] : parts_)
      if (!deltas_.count(target)) check(target, parts, base);
  }

  bool has(const std::string& target) const { return parts_.count(target) > 0; }
  // What it brings whole of a head of numbers, and the base has not: names.
  std::vector<std::string> own_tensors(const TensorFolder& base) const {
    std::vector<std::string> names;
    for (const auto& [target, parts] : parts_)
      if (parts.count("weight") && !base.find(target) && target != kHead) names.push_back(target);
    return names;
  }
  at::Tensor own_tensor(const std::string& target) const { return file_->tensor(parts_.at(target).at("weight")); }
  // Does it change this one of two tied tensors, and not the other?
  bool parts_from_twin(const std::string& target) const { return has(target) && !parts_.at(target).count("rows"); }
  // weight * (merged - W) for the rows [first, first + count) of W, which come as f32.
  at::Tensor change(const std::string& target, const at::Tensor& base, int64_t first) const {
    if (const auto delta = deltas_.find(target); delta != deltas_.end())
      return (delta->second->merged_rows(base, first) - base) * weight_;
    const auto& parts = parts_.at(target);
    const auto tensor = [&](const char* what) { return file_->tensor(parts.at(what)).to(at::kFloat); };
    if (parts.count("rows")) return changed_rows(target, tensor("rows"), base, first) * weight_;
    if (parts.count("shift"))
      return tensor("shift").narrow(0, first, base.size(0)) * (scale_of(module_of(target)) * weight_);
    if (parts.count("weight")) return (tensor("weight").narrow(0, first, base.size(0)) - base) * weight_;
    if (!parts.count("table")) return changed_by_factors(target, base, first) * weight_;
    const at::Tensor rows = tensor("table").narrow(0, first, base.size(0));
    return (rows - base + changed_by_factors(target, rows, first)) * weight_;
  }

 private:
  double scale_of(const std::string& module) const {
    const auto& parts = parts_.at(module + ".weight");
    const std::string& a = parts.at(parts.count("embedding_A") ? "embedding_A" : "A");
    const auto rank = static_cast<double>(file_->entries().at(a).shape.at(0));
    return config_.alpha_of(module) / (config_.rslora ? std::sqrt(rank) : rank);
  }
  // Of rows that the adapter holds whole, those among [first, first + size).
  at::Tensor changed_rows(const std::string& target, const at::Tensor& saved, const at::Tensor& base,
                          int64_t first) const {
    at::Tensor change = at::zeros_like(base);
    const auto rows = rows_of(target);
    for (size_t i = 0; i < rows.size(); ++i)
      if (const int64_t at = rows[i] - first; at >= 0 && at < base.size(0))
        change[at].copy_(saved[static_cast<int64_t>(i)] - base[at]);
    return change;
  }
  std::vector<int64_t> rows_of(const std::string& target) const {
    const auto rows = config_.rows_of(module_of(target));
    return rows.empty() && target == kHead ? config_.rows_of("embed_tokens") : rows;
  }
  at::Tensor changed_by_factors(const std::string& target, const at::Tensor& rows, int64_t first) const {
    const auto& parts = parts_.at(target);
    const auto tensor = [&](const char* what) { return file_->tensor(parts.at(what)).to(at::kFloat); };
    const bool embedding = parts.count("embedding_A");
    const at::Tensor a = tensor(embedding ? "embedding_A" : "A"), b = tensor(embedding ? "embedding_B" : "B");
    const at::Tensor delta =
        embedding ? a.narrow(1, first, rows.size(0)).t().mm(b.t()) : b.narrow(0, first, rows.size(0)).mm(a);
    const at::Tensor scaled = delta * scale_of(module_of(target));
    if (!parts.count("magnitude")) return scaled;
    const at::Tensor sum = rows + scaled;
    return sum * (tensor("magnitude").narrow(0, first, rows.size(0)) / sum.norm(2, 1)).unsqueeze(1) - rows;
  }

  // (base tensor, what the adapter's tensor is to it); an empty target when the base has no such tensor.
  std::pair<std::string, std::string> meaning(const std::string& name, const TensorFolder& base) const {
    const std::string own = adapter_prefix(config_);
    std::string rest = name;
    const std::string prefix = "base_model.model.";
    if (rest.rfind(prefix, 0) == 0) rest.erase(0, prefix.size());
    std::string what = rest.substr(rest.rfind('.') + 1);
    for (const auto& [ending, meant] : {std::pair{".lora_A.weight", "A"},
                                        {".lora_B.weight", "B"},
                                        {".lora_magnitude_vector", "magnitude"},
                                        {".lora_magnitude_vector.weight", "magnitude"},
                                        {".lora_embedding_A", "embedding_A"},
                                        {".lora_embedding_B", "embedding_B"},
                                        {".token_adapter.trainable_tokens_delta", "rows"}})
      if (rest.ends_with(ending))
        rest = rest.substr(0, rest.size() - std::string(ending).size()) + ".weight", what = meant;
    if (rest.ends_with(".lora_B.bias"))
      rest = rest.substr(0, rest.size() - std::string(".lora_B.bias").size()) + ".bias", what = "shift";
    // Of other kinds than LoRA: the parameter's own name.
    if (what.starts_with(own)) rest = rest.substr(0, rest.size() - what.size()) + "weight";
    if (what == "bias") what = "weight";  // replaced whole, like modules_to_save
    const std::string plain = without_base_layer(rest);
    if (plain != rest && plain.ends_with(".weight")) what = "table";  // the layer's own, below its factors
    rest = plain;
    if (base.find(rest) || rest == kHead) return {rest, what};
    for (const DiskForm& form : forms_)  // adapters follow the model's names, files keep older ones, or the other way
      for (const std::string& other : {form.disk_name(rest), form.own_name(rest)})
        if (base.find(other)) return {other, what};
    const std::string bare = bare_name(rest, rest.substr(0, rest.find('.')));
    if (base.find(bare)) return {bare, what};
    const std::string root = score_.substr(0, score_.find('.'));
    const bool of_head = what == "weight" && (rest.starts_with(root + ".") || config_.saves(module_of(rest)));
    return {of_head ? rest : "", what};
  }

  // The changes themselves, of kinds other than LoRA, with the file's values.
  void make_deltas(const TensorFolder& base) {
    std::map<std::string, std::map<std::string, std::string>> biases;  // that are scaled like their layer's outputs
    std::map<std::string, Adaptable::Sides> sides;
    Adaptable::Sides widest{0, 0};
    for (const auto& [target, parts] : parts_) {
      const TensorEntry* entry = base.find(target);
      if (parts.count("weight")) continue;
      require(entry && entry->shape.size() == 2, Fault::Model, "the adapter ", dir_.string(), " changes ", target,
              ", which is no matrix of the base");
      const std::vector<int64_t> shape = own_shape(target, *entry);
      sides[target] = {.in = shape[1], .out = shape[0]};
      widest.in = std::max(widest.in, shape[1]), widest.out = std::max(widest.out, shape[0]);
    }
    const auto shared = shared_matrices(config_, widest, file_.get());
    for (const auto& [target, layer] : sides) {
      const auto& parts = parts_.at(target);
      const DeltaPlace place{.module = module_of(target), .sides = layer, .shared = shared};
      std::shared_ptr<TrainedDelta> delta = make_delta(config_, place);
      delta->visit([&, &own = parts](const std::string& what, Param& p) {
        const bool fits = own.count(what) && file_->entries().at(own.at(what)).shape == p.full;
        require(fits, Fault::Model, "the adapter ", dir_.string(),
                " was made for another model (its base: ", config_.base_model, "): its ", what, " for ", target,
                " is missing or does not fit a tensor of that shape");
        p.data = file_->tensor(own.at(what));
      });
      const std::string bias = module_of(target) + ".bias";
      if (delta->scales_outputs() && base.find(bias)) biases[bias] = parts, deltas_[bias] = delta;
      deltas_[target] = std::move(delta);
    }
    parts_.merge(biases);
  }

  // As the model has it.
  std::vector<int64_t> own_shape(const std::string& target, const TensorEntry& entry) const {
    std::vector<int64_t> shape = entry.shape;
    if (stands_turned(forms_, target, shape)) std::swap(shape[0], shape[1]);
    return shape;
  }
  void check(const std::string& target, const std::map<std::string, std::string>& parts,
             const TensorFolder& base) const {
    const TensorEntry* entry = base.find(target);
    if (!entry) return;  // the head of a tied model
    const std::vector<int64_t> own = own_shape(target, *entry);
    const auto shape = [&](const char* what) {
      return parts.count(what) ? file_->entries().at(parts.at(what)).shape : std::vector<int64_t>();
    };
    bool fits = true;
    if (parts.count("weight")) {
      fits = parts.size() == 1 && shape("weight") == entry->shape;
    } else if (parts.count("shift")) {
      fits = parts_.count(module_of(target) + ".weight") && shape("shift") == entry->shape;
    } else if (parts.count("rows")) {
      const auto rows = rows_of(target);
      fits = parts.size() == 1 && entry->shape.size() == 2 &&
             shape("rows") == std::vector<int64_t>{static_cast<int64_t>(rows.size()), entry->shape[1]} &&
             std::all_of(rows.begin(), rows.end(), [&](int64_t row) { return row >= 0 && row < entry->shape[0]; });
    } else {
      const bool embedding = parts.count("embedding_A");
      const auto a = shape(embedding ? "embedding_A" : "A"), b = shape(embedding ? "embedding_B" : "B");
      fits = a.size() == 2 && b.size() == 2 && entry->shape.size() == 2 && a[0] == b[1] &&
             (embedding ? b[0] == own[1] && a[1] == own[0] : b[0] == own[0] && a[1] == own[1]) &&
             (!parts.count("table") || shape("table") == entry->shape);
    }
    require(fits, Fault::Model, "the adapter ", dir_.string(),
            " was made for another model (its base: ", config_.base_model, "): its factors for ", target,
            " do not fit a tensor of that shape");
  }

  fs::path dir_;
  double weight_;
  LoraConfig config_;
  std::vector<DiskForm> forms_;
  std::string score_;
  std::shared_ptr<AdapterFile> file_;
  std::map<std::string, std::shared_ptr<TrainedDelta>> deltas_;      // of kinds other than LoRA
  std::map<std::string, std::map<std::string, std::string>> parts_;  // base tensor -> what -> name in the file
};

struct Planned {
  SafetensorsWriter::Spec tensor;
  std::string source;  // the base's tensor it is made from
};

// Rows are merged a few at a time, so that f32 copies stay small beside the tensor itself.
at::Tensor merged_tensor(const SafetensorsWriter::Spec& t, const at::Tensor& source,
                         const std::vector<Changes>& changes) {
  at::Tensor out = at::empty(t.shape, at::TensorOptions().dtype(t.type));
  const int64_t width = t.shape.size() < 2 ? 1 : source.numel() / std::max<int64_t>(1, t.shape[0]);
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 22) / std::max<int64_t>(1, width));
  for (int64_t first = 0; first < t.shape[0]; first += step) {
    const int64_t count = std::min(step, t.shape[0] - first);
    const at::Tensor rows = source.narrow(0, first, count).to(at::kFloat);
    at::Tensor sum = rows;
    for (const Changes& c : changes)
      if (c.has(t.name)) sum = sum + c.change(t.name, rows, first);
    out.narrow(0, first, count).copy_(sum);
  }
  return out;
}

bool is_float(at::ScalarType t) { return t == at::kFloat || t == at::kBFloat16 || t == at::kHalf || t == at::kDouble; }

// The embedding of the tokens, whatever the backbone is called; empty: there is none.
std::string table_of(const TensorFolder& base) {
  const std::string table = "embed_tokens.weight";
  for (const std::string& name : base.names())
    if (name == table || name.ends_with("." + table)) return name;
  return "";
}

std::vector<Planned> plan(const TensorFolder& base, const std::vector<Changes>& changes, const MergeSpec& spec,
                          bool& untied) {
  std::vector<Planned> all;
  const auto add = [&](const std::string& name, const std::string& source) {
    const TensorEntry& entry = *base.find(source);
    const at::ScalarType type = torch_type(entry.type);
    all.push_back({{name, spec.dtype && is_float(type) ? *spec.dtype : type, entry.shape}, source});
  };
  for (const std::string& name : base.names()) add(name, name);
  // A tied model has no head on disk. Once the head or the embedding is replaced alone, they are two tensors.
  const std::string embedding = table_of(base);
  const bool apart = std::any_of(changes.begin(), changes.end(), [&](const Changes& c) {
    return c.parts_from_twin(kHead) || c.parts_from_twin(embedding);
  });
  for (const Changes& c : changes)
    for (const std::string& name : c.own_tensors(base)) {
      require(changes.size() == 1, Fault::Usage, "several adapters with heads of their own cannot be merged into one");
      const at::ScalarType type =
          spec.dtype.value_or(base.find(embedding) ? torch_type(base.find(embedding)->type) : at::kFloat);
      all.push_back({{name, type, c.own_tensor(name).sizes().vec()}, ""});
    }
  untied = !base.find(kHead) && apart && base.find(embedding);
  if (untied) add(kHead, embedding);
  return all;
}

}  // namespace

MergeReport merge_adapters(const MergeSpec& spec) {
  at::NoGradGuard no_grad;
  const Json base_config = parse_json(read_file(spec.base / kModelConfigFile, 16 << 20),
                                      (spec.base / kModelConfigFile).string(), Fault::Model);
  require(!base_config.contains("quantization_config"), Fault::Usage, "the base ", spec.base.string(),
          " is quantised, and merged weights would have to be rounded again: merge into the unquantised checkpoint "
          "(--model), or into what apus export --to_hf true makes of it, then quantise the result (apus export "
          "--quant_method)");
  const TensorFolder base(spec.base);
  const std::vector<DiskForm> forms = disk_forms_of(parse_json(read_file(spec.base / kModelConfigFile, 16 << 20),
                                                               (spec.base / kModelConfigFile).string(), Fault::Model));
  std::vector<Changes> changes;
  const auto with_head = [&](int64_t labels) {
    return with_score_head(base_config, head_of_adapter(spec.parts.at(0).adapter, labels));
  };
  // What the head is called may depend on what it labels.
  const std::string score_name = score_head_name(spec.parts.empty() ? base_config : with_head(1));
  for (const MergePart& part : spec.parts) changes.emplace_back(part, base, forms, score_name);
  bool untied = false;
  const auto tensors = plan(base, changes, spec, untied);

  FolderWriter folder(spec.output);
  std::vector<SafetensorsWriter::Spec> written;
  for (const Planned& t : tensors) written.push_back(t.tensor);
  ShardsWriter writer(folder.dir(), written, spec.max_shard);
  MergeReport report{.shards = writer.shards(), .bytes = writer.bytes()};
  int64_t labels = 0;  // of a head that the adapter brings
  for (const auto& [tensor, from] : tensors) {
    if (from.empty()) {  // the adapter's own
      writer.add(tensor.name, changes[0].own_tensor(tensor.name).to(tensor.type));
      if (tensor.name == score_name + ".weight") labels = tensor.shape[0];
      ++report.changed, spec.progress(++report.tensors, static_cast<int64_t>(tensors.size()));
      continue;
    }
    const at::Tensor source = base.tensor(from);
    const bool changed =
        std::any_of(changes.begin(), changes.end(), [&, &name = tensor.name](const Changes& c) { return c.has(name); });
    const bool turned = stands_turned(forms, tensor.name, tensor.shape);
    const auto merged = [&, &tensor = tensor] {
      if (!turned) return merged_tensor(tensor, source, changes);
      const SafetensorsWriter::Spec own{tensor.name, tensor.type, {tensor.shape[1], tensor.shape[0]}};
      return merged_tensor(own, source.t(), changes).t().contiguous();
    };
    writer.add(tensor.name, changed ? merged() : source);
    base.forget(from);
    report.changed += changed;
    spec.progress(++report.tensors, static_cast<int64_t>(tensors.size()));
  }
  writer.commit();
  Json config = labels > 0 ? with_head(labels) : base_config;
  if (untied) config["tie_word_embeddings"] = false;
  const fs::path run = (spec.parts.empty() ? spec.base : spec.parts[0].adapter) / kArgumentsFile;
  const Json arguments = fs::exists(run) ? parse_json(read_file(run, 16 << 20), run.string(), Fault::Model) : Json();
  if (spec.dtype)
    config[config.contains("dtype") && !config.contains("torch_dtype") ? "dtype" : "torch_dtype"] =
        float_type_name(*spec.dtype);
  write_file_atomic(folder.dir() / kModelConfigFile, config.dump(2) + "\n");
  copy_side_files(spec.base, folder.dir());
  // System prompt and template go with the model, and what it is for.
  if (!arguments.is_null()) write_file_atomic(folder.dir() / kArgumentsFile, read_file(run, 16 << 20));
  if (arguments.is_object() && arguments.value("task_type", Json()) == "embedding") {
    VectorForm form = read_vector_files(spec.base).value_or(VectorForm());
    form.pooling = pooling_named(arguments.value("pooling", "last"));
    form.width = config.value("hidden_size", int64_t{0});
    write_vector_files(folder.dir(), form);
  }
  folder.commit();
  return report;
}

}  // namespace apus
