// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tables.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "checkpoint/names.h"
#include "nn/parts.h"

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

std::map<std::string, TokenRows> token_rows_of(Model& model, const LoraConfig& config, const std::string& prefix) {
  std::map<std::string, TokenRows> all;
  model.visit([&](const std::string& name, Param& p) {
    const std::string module = module_of(name);
    auto rows = config.rows_of(module);
    if (!rows.empty() && name == module + ".weight" && p.tied.empty())
      all[prefix + module + kTokenRows] = {&p, std::move(rows)};
  });
  return all;
}

void put_rows(Model& model, const TokenRows& place, const std::string& name, const at::Tensor& saved) {
  const at::Tensor table = gathered(*place.table, model.mesh());
  for (const int64_t row : place.rows)
    require(row >= 0 && row < table.size(0), Fault::Model, "trainable_token_indices has ", row, ", but ", name,
            " belongs to a table of ", table.size(0), " rows");
  const at::Tensor index = at::tensor(place.rows, at::kLong).to(table.device());
  put_table(model, *place.table, at::index_copy(table, 0, index, saved.to(table.options())));
}

}  // namespace apus
