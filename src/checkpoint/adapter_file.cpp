// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_file.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/names.h"

namespace apus {
namespace {

constexpr const char *kFirst = ".lora_A.weight", *kSecond = ".lora_B.weight", *kInner = ".base_layer",
                     *kNorms = ".ln_tuning_layers";

// The stacks of these experts that have factors, the inner one first.
std::vector<std::string> stacked_weights(const std::string& experts, const LoraConfig& config) {
  std::vector<std::string> all;
  for (const char* side : {"gate_proj", "down_proj"})
    if (config.stacks(experts + ".0." + side)) all.push_back(expert_matrix(experts + ".0." + side)->stack());
  return all;
}

std::vector<std::string> sides_of(const std::string& stack) {
  return stack == "down_proj" ? std::vector<std::string>{stack} : std::vector<std::string>{"gate_proj", "up_proj"};
}

}  // namespace

AdapterFile::AdapterFile(const std::filesystem::path& path, const LoraConfig& config)
    : file_(SafetensorsFile::open(path)) {
  const auto& all = file_->entries();
  // Some programs write a model's own names without the beginning that PEFT puts before them.
  const bool bare = config.kind == "lora" && !all.empty() && std::none_of(all.begin(), all.end(), [](const auto& each) {
                      return each.first.starts_with("base_model.");
                    });
  for (const auto& [name, entry] : all)
    if (const size_t at = name.rfind(kNorms); config.kind == "ln_tuning" && at != std::string::npos) {
      const std::string own = name.substr(0, at) + name.substr(at + std::string(kNorms).size());
      entries_[own] = entry, in_file_[own] = name;
    } else if (bare) {
      entries_[kAdapterPrefix + name] = entry, in_file_[kAdapterPrefix + name] = name;
    } else if (name != kSharedA && name != kSharedB) {
      unstack(name, entry, config);
    }
}

std::optional<std::pair<at::Tensor, at::Tensor>> AdapterFile::shared_matrices() const {
  if (!file_->entries().count(kSharedA) || !file_->entries().count(kSharedB)) return std::nullopt;
  return std::pair(file_->tensor(kSharedA).clone(), file_->tensor(kSharedB).clone());
}

void AdapterFile::unstack(const std::string& name, const TensorEntry& entry, const LoraConfig& config) {
  const bool first = name.ends_with(kFirst);
  std::string experts = name;
  if (name.starts_with(kAdapterPrefix)) experts.erase(0, std::string(kAdapterPrefix).size());
  size_t depth = 0;
  if (first || name.ends_with(kSecond)) {
    experts.resize(experts.size() - std::string(kFirst).size());
    for (; experts.ends_with(kInner); ++depth) experts.resize(experts.size() - std::string(kInner).size());
  }
  const auto stacks = stacked_weights(experts, config);
  if (depth >= stacks.size() || entry.shape.size() != 2) {
    entries_[name] = entry;
    return;
  }
  const std::string stack = stacks[stacks.size() - 1 - depth];
  const auto sides = sides_of(stack);
  const auto side_count = static_cast<int64_t>(sides.size());
  const int64_t rank = config.rank_of(experts + ".0." + sides[0]), ranks = entry.shape[first ? 0 : 1];
  const int64_t outputs = first ? 0 : entry.shape[0] / side_count;
  require(ranks > 0 && ranks % rank == 0 && (first || entry.shape[0] % side_count == 0), Fault::Model,
          file_->path().string(), ": ", name, " has ", ranks, " ranks and ", entry.shape[0],
          " rows, which are no factors of rank ", rank, " over ", stack);
  TensorEntry part = entry;
  part.shape = first ? std::vector<int64_t>{rank, entry.shape[1]} : std::vector<int64_t>{outputs, rank};
  for (int64_t e = 0; e < ranks / rank; ++e)
    for (int64_t side = 0; side < side_count; ++side) {
      const std::string own =
          str(kAdapterPrefix, experts, ".", e, ".", sides[static_cast<size_t>(side)], first ? kFirst : kSecond);
      entries_[own] = part;
      pieces_[own] = {name, e, ranks / rank, first, side * outputs, outputs};
    }
}

at::Tensor AdapterFile::tensor(const std::string& name) const {
  if (const auto other = in_file_.find(name); other != in_file_.end()) return file_->tensor(other->second);
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) return file_->tensor(name);
  const Piece& p = found->second;
  const at::Tensor all = file_->tensor(p.source);
  if (p.first) return all.view({p.experts, -1, all.size(1)}).select(0, p.expert);
  return all.narrow(0, p.begin, p.outputs).view({p.outputs, -1, p.experts}).select(2, p.expert);
}

std::string name_in_file(const LoraConfig& config, const std::string& module) {
  if (config.kind == "adapter") return module.substr(0, module.rfind('.')) + ".adapter_default";
  return config.kind == "prompt_tuning" ? "" : kAdapterPrefix + module;
}

void AdapterFile::complete(LoraConfig& config) const {
  const std::string prefix = kAdapterPrefix, values = ".lora_E", rotation = ".boft_R";
  for (const auto& [name, entry] : entries_) {
    if (config.kind == "adalora" && name.starts_with(prefix) && name.ends_with(values) && entry.shape.at(0) != config.r)
      config.ranks_left[name.substr(prefix.size(), name.size() - prefix.size() - values.size())] = entry.shape[0];
    if (config.kind == "boft" && name.ends_with(rotation) && entry.shape.at(0) == 1) config.boft.factors = 1;
  }
}

void name_norms(std::vector<std::pair<std::string, at::Tensor>>& tensors, const LoraConfig& config) {
  const size_t begin = std::string(kAdapterPrefix).size();
  for (auto& [name, value] : tensors)
    if (config.kind == "ln_tuning" && config.targets(module_of(name).substr(begin)))
      name.insert(name.rfind('.'), kNorms);
}

void stack_factors(std::vector<std::pair<std::string, at::Tensor>>& tensors, const LoraConfig& config) {
  if (config.target_parameters.empty()) return;
  // By experts and stack: the factors of each expert, by side.
  struct Factors {
    std::map<int64_t, at::Tensor> a;
    std::map<int64_t, std::vector<at::Tensor>> b;  // gate before up
  };
  std::map<std::pair<std::string, std::string>, Factors> stacks;
  std::vector<std::pair<std::string, at::Tensor>> others;
  for (const auto& [name, tensor] : tensors) {
    const size_t prefix = std::string(kAdapterPrefix).size(), ending = std::string(kFirst).size();
    const bool first = name.ends_with(kFirst);
    const std::string module =
        first || name.ends_with(kSecond) ? name.substr(prefix, name.size() - prefix - ending) : std::string();
    if (!config.stacks(module)) {
      others.emplace_back(name, tensor);
      continue;
    }
    const ExpertMatrix matrix = *expert_matrix(module);
    Factors& factors = stacks[{matrix.experts, matrix.stack()}];
    if (first)
      factors.a.emplace(matrix.expert, tensor);
    else if (auto& sides = factors.b[matrix.expert]; matrix.side == "gate_proj")
      sides.insert(sides.begin(), tensor);
    else
      sides.push_back(tensor);
  }
  tensors = std::move(others);
  for (const auto& [place, factors] : stacks) {
    const bool outer = stacked_weights(place.first, config).back() == place.second;
    const std::string name = str(kAdapterPrefix, place.first, outer ? "" : kInner);
    std::vector<at::Tensor> a, b;
    for (const auto& [expert, factor] : factors.a) a.push_back(factor);
    for (const auto& [expert, sides] : factors.b) b.push_back(at::cat(sides, 0));
    tensors.emplace_back(name + kFirst, at::cat(a, 0));
    tensors.emplace_back(name + kSecond, at::stack(b, 2).flatten(1));
  }
}

}  // namespace apus
