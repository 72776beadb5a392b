// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tables.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "checkpoint/names.h"
#include "dist/mesh.h"
#include "nn/parts.h"
#include "ops/quantised.h"

namespace apus {

void put_table(Model& model, Param& p, const at::Tensor& saved) {
  if (!p.data.defined()) return;
  const at::Tensor before = p.data, converted = own_part(saved, p).to(before.options());
  if (at::equal(converted, before)) return;
  const at::Tensor table = converted.is_alias_of(saved) ? converted.clone() : converted;  // not the file's pages
  model.visit([&](const std::string&, Param& other) {
    if (other.data.defined() && other.data.is_same(before)) other.data = table, other.mapped = false;
  });
}

namespace {

using Layers = std::map<std::string, Adaptable*>;

// Embeddings, and heads of words.
Layers tables_of(Model& model) {
  Layers all;
  model.visit_modules([&](const std::string& name, Module& module) {
    auto* const layer = dynamic_cast<Adaptable*>(&module);
    const bool head = model.head_kind() == Head::Vocab && name == model.head_name();
    if (layer && (head || layer->sides().looks_up)) all[name] = layer;
  });
  return all;
}

TokenRows* token_rows(Adaptable& layer, const std::string& adapter) {
  const auto found = layer.adapters().find(adapter);
  return found == layer.adapters().end() ? nullptr : dynamic_cast<TokenRows*>(found->second);
}

std::string rows_name(const std::string& module, const std::string& adapter) {
  return str(module, ".", adapter, ".token_adapter.trainable_tokens_delta");
}

void check_rows(const std::string& name, const std::vector<int64_t>& rows, int64_t words) {
  std::set<int64_t> seen;
  for (const int64_t row : rows) {
    require(row >= 0 && row < words, Fault::Usage, "trainable_token_indices has ", row, ", but ", name,
            " is a table of ", words, " rows");
    require(seen.insert(row).second, Fault::Usage, "trainable_token_indices has ", row, " twice");
  }
}

}  // namespace

void attach_token_rows(Model& model, const LoraConfig& config, const std::string& adapter, at::ScalarType type) {
  if (config.token_rows.empty()) return;
  const MeshView* const mesh = model.mesh();
  require(!mesh || mesh->size({Axis::Tp, Axis::Pp}) == 1, Fault::Usage,
          "trainable_token_indices is not available with --tensor_model_parallel_size or "
          "--pipeline_model_parallel_size: merge the adapter first (apus merge-lora), or share out data alone");
  const Layers tables = tables_of(model);
  std::vector<std::string> names;
  for (const auto& [module, layer] : tables) names.push_back(module);
  for (const auto& [wanted, rows] : config.token_rows) {
    const LoraConfig one{.token_rows = {{wanted, rows}}};
    require(std::any_of(names.begin(), names.end(), [&](const auto& name) { return !one.rows_of(name).empty(); }),
            Fault::Usage, "trainable_token_indices has rows of ", wanted.empty() ? "embed_tokens" : wanted,
            ": this model has ", join(names));
  }
  for (const auto& [module, layer] : tables) {
    Param& weight = layer->weight();
    const bool tied = !weight.tied.empty();
    const std::vector<int64_t> rows = config.rows_of(tied ? module_of(weight.tied) : module);
    if (rows.empty()) {
      require(!tied || config.rows_of(module).empty(), Fault::Usage, "trainable_token_indices: ", module,
              " is tied to ", module_of(weight.tied), ": name that one");
      continue;
    }
    require(!config.targets(module) && !config.saves(module), Fault::Usage, "trainable_token_indices means rows of ",
            module, ", which is trained by --target_modules or --modules_to_save already: choose one");
    require(!ops::is_quantised(weight.data), Fault::Usage, "trainable_token_indices: ", module, " is held quantised");
    check_rows(module, rows, weight.full[0]);
    const at::Tensor whole = gathered(weight, model.mesh());
    const at::Tensor before = at::index_select(whole, 0, at::tensor(rows, at::kLong).to(whole.device()));
    auto own = std::make_unique<TokenRows>(rows, weight.full[0], before, layer->sides().looks_up);
    TokenRows& laid = *own;
    layer->attach(adapter, std::move(own));
    laid.rows().data = own_part(before.to(type), laid.rows()).clone();
    if (tied) laid.rows().tied = rows_name(module_of(weight.tied), adapter);
  }
  share_token_rows(model, adapter);
}

void each_token_rows(Model& model, const std::string& adapter,
                     const std::function<void(const std::string&, Adaptable&, TokenRows&)>& f) {
  for (const auto& [module, layer] : tables_of(model))
    if (TokenRows* const rows = token_rows(*layer, adapter); rows && rows->rows().tied.empty())
      f(module, *layer, *rows);
}

void share_token_rows(Model& model, const std::string& adapter) {
  const Layers tables = tables_of(model);
  for (const auto& [module, layer] : tables) {
    TokenRows* const rows = token_rows(*layer, adapter);
    if (!rows || rows->rows().tied.empty()) continue;
    for (const auto& [other, table] : tables)
      if (rows->rows().tied == rows_name(other, adapter))
        rows->rows().data = token_rows(*table, adapter)->rows().data.to(rows->rows().data.device());
  }
}

void merge_token_rows(Model& model, const std::string& adapter) {
  each_token_rows(model, adapter, [&](const std::string&, Adaptable& layer, TokenRows& rows) {
    put_table(model, layer.weight(), rows.merged(gathered(layer.weight(), model.mesh())));
  });
  for (const auto& [module, layer] : tables_of(model))
    if (token_rows(*layer, adapter)) layer->detach(adapter);
}

}  // namespace apus
