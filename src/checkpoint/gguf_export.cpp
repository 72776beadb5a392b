// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_export.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/imatrix.h"
#include "tensor/safetensors.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kTogether = int64_t{1} << 22;  // numbers that are converted at a time

// As the file has it, of a tensor of the checkpoint. What is taken as it is keeps its type.
at::Tensor in_file(at::Tensor t, const std::string& name, const GgufTurn& turn, const GgufSizes& sizes) {
  if (turn.drops_one) t = t.squeeze();
  if (turn.groups > 0 && t.dim() > 2) t = t.flatten(-3, -2);
  if (turn.turned && t.dim() > 1) t = t.transpose(-2, -1);
  if (turn.rows) {
    const int64_t dim = t.dim() == 1 || name.ends_with("bias") ? t.dim() - 1 : t.dim() - 2;
    t = t.index_select(dim, at::tensor(turn.rows(sizes, t.size(dim)), at::kLong));
  }
  if (turn.scales) t = t.to(at::kFloat) * at::tensor(turn.scales(sizes, t.size(0)), at::kFloat).unsqueeze(-1);
  if (turn.columns && t.dim() > 1) t = t.index_select(-1, at::tensor(turn.columns(sizes, t.size(-1)), at::kLong));
  if (turn.heads) t = t.reshape({turn.heads(sizes), -1, t.size(-1)});
  if (turn.heads_turned) t = t.transpose(1, 2);
  if (turn.numbers == GgufTurn::Numbers::FromOne) t = t.to(at::kFloat) + 1;
  if (turn.numbers == GgufTurn::Numbers::MinusExp) t = -t.to(at::kFloat).exp();
  return t;
}

// `importance`: of each number of a row; null: not known.
void write_rows(GgufWriter& writer, const at::Tensor& tensor, GgmlType type, const std::string& name,
                const float* importance) {
  const GgmlForm& form = ggml_form(type);
  const at::Tensor flat = tensor.dim() > 1 ? tensor.flatten(0, -2) : tensor.unsqueeze(0);
  const int64_t rows = flat.size(0), width = flat.size(1), row_bytes = ggml_bytes(form, width);
  const int64_t step = std::max<int64_t>(1, kTogether / std::max<int64_t>(1, width));
  std::vector<std::byte> out(static_cast<size_t>(std::min(step, rows) * row_bytes));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const at::Tensor numbers = flat.narrow(0, first, count).to(at::kFloat).contiguous();
    const float* x = numbers.data_ptr<float>();
    std::atomic<bool> finite{true};
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      const bool good = std::all_of(x + begin * width, x + end * width, [](float v) { return std::isfinite(v); });
      if (!good) finite = false;
      if (good)
        ggml_write(type, x + begin * width, out.data() + begin * row_bytes, (end - begin) * width, importance, width);
    });
    require(finite, Fault::Model, "tensor '", name, "' holds numbers that are infinite or not numbers at all");
    writer.add(out.data(), count * row_bytes);
  }
}

// Of a stack, each of its matrices has an importance of its own.
void write_parts(GgufWriter& writer, const at::Tensor& tensor, GgmlType type, const std::string& name,
                 const float* importance) {
  if (tensor.dim() < 3 || !importance) return write_rows(writer, tensor, type, name, importance);
  for (int64_t i = 0; i < tensor.size(0); ++i)
    write_rows(writer, tensor[i], type, name, importance + i * tensor.size(-1));
}

}  // namespace

namespace {

// A tower's matrices are not quantised, as its few weights decide what is seen.
GgmlType type_of_tower(const GgufMix& mix) {
  return mix.base == GgmlType::F32 || mix.base == GgmlType::BF16 ? mix.base : GgmlType::F16;
}

void write_tower(const fs::path& to, const GgufTowerSettings& tower, const TensorFolder& folder) {
  GgufSizes sizes = tower.sizes;
  sizes.config = &tower.vision;
  GgufPlan plan{tower.all, {}};
  for (const GgufSource& source : tower.sources) plan.tensors.push_back(source.tensor);
  GgufWriter writer(to, std::move(plan));
  for (const GgufSource& source : tower.sources) {
    const std::string& name = source.from.at(0);
    const at::Tensor whole = folder.tensor(name);
    write_rows(writer, in_file(source.row < 0 ? whole : whole[source.row], name, source.turn, sizes),
               source.tensor.type, name, nullptr);
    folder.forget(name);
  }
  writer.commit();
}

// Numbers of every layer become lists (GgufForm::numbers).
void add_numbers(GgufSettings& settings, const TensorFolder& folder) {
  const GgufForm& form = settings.family.form;
  for (const GgufNumber& number : form.numbers) {
    GgufValue::Numbers all;
    for (int64_t i = 0; i < settings.sizes.layers; ++i)
      all.push_back(folder.tensor(str(form.layers, i, ".", number.hf)).to(at::kFloat).item<float>());
    settings.all.emplace_back(number.gguf, GgufValue::list(GgufKind::F32, std::move(all)));
  }
}

}  // namespace

GgufReport export_gguf(const GgufExport& what) {
  at::NoGradGuard no_grad;
  const TensorFolder folder(what.from);
  GgufSettings settings = gguf_settings(what.from, *what.mix, what.name);
  add_numbers(settings, folder);
  std::optional<GgufTowerSettings> tower;
  if (settings.seeing) tower = gguf_tower_settings(settings, what.from, type_of_tower(*what.mix), what.name);
  std::optional<ImportanceMatrix> importance;
  if (!what.imatrix.empty()) importance = ImportanceMatrix::read(what.imatrix);
  settings.facts.importance = importance.has_value();
  GgufSizes sizes = settings.sizes;
  sizes.config = &settings.config;
  const std::vector<GgufSource>& sources = settings.sources;
  GgufPlan plan{std::move(settings.all), {}};
  for (const GgufSource& source : sources) plan.tensors.push_back(source.tensor);
  GgufReport report{.tensors = std::ssize(plan.tensors)};
  report.larger = choose_types(plan.tensors, *what.mix, settings.facts);
  const std::vector<GgufPlan::Tensor> tensors = plan.tensors;
  report.bytes = plan.bytes();
  for (const GgufPlan::Tensor& t : tensors)
    report.weights += std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
  GgufWriter writer(what.to, std::move(plan));
  for (size_t i = 0; i < sources.size(); ++i) {
    const GgufSource& source = sources[i];
    if (source.from.empty()) {
      const std::vector<float>& factors = settings.factors.at(source.tensor.name);
      writer.add(reinterpret_cast<const std::byte*>(factors.data()),
                 static_cast<int64_t>(factors.size() * sizeof(float)));
    }
    const std::vector<int64_t>& shape = tensors[i].shape;
    const int64_t stack = shape.size() > 2 ? shape[0] : 1;
    const bool matrix = shape.size() > 1 && ggml_form(tensors[i].type).quantised();
    const float* row = importance && matrix ? importance->find(source.tensor.name, shape.back(), stack) : nullptr;
    report.weighed += row != nullptr;
    for (size_t part = 0; part < source.from.size(); ++part) {
      const std::string& name = source.from[part];
      const at::Tensor tensor = in_file(folder.tensor(name), name, source.turn, sizes);
      write_parts(writer, tensor, tensors[i].type, name,
                  row ? row + static_cast<int64_t>(part) * shape.back() : nullptr);
      folder.forget(name);
    }
    what.progress(static_cast<int64_t>(i) + 1, report.tensors);
  }
  writer.commit();
  if (!tower) return report;
  report.tower = what.to.parent_path() / ("mmproj-" + what.to.filename().string());
  write_tower(report.tower, *tower, folder);
  return report;
}

}  // namespace apus
