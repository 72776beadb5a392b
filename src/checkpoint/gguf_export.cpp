// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_export.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "checkpoint/gguf_settings.h"
#include "tensor/safetensors.h"

namespace apus {

namespace {

constexpr int64_t kTogether = int64_t{1} << 22;  // numbers that are converted at a time

// A tensor of the file, and the checkpoint's that it is made of: several where experts are stacked.
struct Source {
  GgufPlan::Tensor tensor;
  std::vector<std::string> from;
  int64_t heads = 0;  // above 0: rows go into the order of neighbours
  int shift = 0;      // is added to every number
};

bool is_left_out(const std::string& name, bool tied) {
  return name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
}

std::vector<Source> sources_of(const TensorFolder& folder, const GgufSettings& settings) {
  std::map<std::string, Source> found;
  std::map<std::string, std::map<int64_t, std::string>> stacks;
  std::vector<std::string> unknown;
  for (const std::string& name : folder.names()) {
    if (is_left_out(name, settings.facts.tied)) continue;
    GgufPlace place = gguf_name(name, *settings.family);
    if (place.name.empty()) place = gguf_name("model." + name, *settings.family);
    if (place.name.empty()) {
      unknown.push_back(name);
      continue;
    }
    const TensorEntry& entry = *folder.find(name);
    Source& source = found[place.name];
    source.tensor = {place.name, GgmlType::F32, entry.shape};
    source.shift = shift_of(place.name, *settings.family);
    const bool q = place.name.find(".attn_q.") != std::string::npos,
               k = place.name.find(".attn_k.") != std::string::npos;
    if (settings.family->neighbours && (q || k)) source.heads = q ? settings.facts.heads : settings.facts.kv_heads;
    if (place.expert >= 0)
      stacks[place.name][place.expert] = name;
    else
      source.from = {name};
  }
  const size_t strangers = unknown.size();
  if (strangers > 8) unknown.resize(8), unknown.push_back("...");
  require(strangers == 0, Fault::Model, strangers, " tensors have no name in a GGUF file: ", join(unknown));
  for (const auto& [name, experts] : stacks) {
    Source& source = found[name];
    source.tensor.shape.insert(source.tensor.shape.begin(), static_cast<int64_t>(experts.size()));
    for (const auto& [number, from] : experts) source.from.push_back(from);
  }
  std::vector<Source> out;
  for (auto& [name, source] : found) out.push_back(std::move(source));
  return out;
}

// From (half, j) to (j, half) in every head.
at::Tensor as_neighbours(const at::Tensor& rows, int64_t heads) {
  const at::Tensor flat = rows.contiguous();
  const int64_t half = flat.size(0) / heads / 2;
  return flat.view({heads, 2, half, -1}).transpose(1, 2).reshape(flat.sizes()).contiguous();
}

void write_rows(GgufWriter& writer, const at::Tensor& tensor, GgmlType type, const std::string& name) {
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
      if (good) ggml_write(type, x + begin * width, out.data() + begin * row_bytes, (end - begin) * width);
    });
    require(finite, Fault::Model, "tensor '", name, "' holds numbers that are infinite or not numbers at all");
    writer.add(out.data(), count * row_bytes);
  }
}

}  // namespace

GgufReport export_gguf(const GgufExport& what) {
  at::NoGradGuard no_grad;
  const TensorFolder folder(what.from);
  GgufSettings settings = gguf_settings(what.from, *what.mix, what.name);
  std::vector<Source> sources = sources_of(folder, settings);
  for (const auto& [name, factors] : settings.factors)
    sources.push_back({{name, GgmlType::F32, {static_cast<int64_t>(factors.size())}}, {}});
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return comes_before(a.tensor.name, b.tensor.name); });
  GgufPlan plan{std::move(settings.all), {}};
  for (const Source& source : sources) plan.tensors.push_back(source.tensor);
  GgufReport report{.tensors = std::ssize(plan.tensors)};
  report.larger = choose_types(plan.tensors, *what.mix, settings.facts);
  const std::vector<GgufPlan::Tensor> tensors = plan.tensors;
  report.bytes = plan.bytes();
  for (const GgufPlan::Tensor& t : tensors)
    report.weights += std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
  GgufWriter writer(what.to, std::move(plan));
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    if (source.from.empty()) {
      const std::vector<float>& factors = settings.factors.at(source.tensor.name);
      writer.add(reinterpret_cast<const std::byte*>(factors.data()),
                 static_cast<int64_t>(factors.size() * sizeof(float)));
    }
    for (const std::string& name : source.from) {
      at::Tensor tensor = folder.tensor(name);
      if (source.heads > 0) tensor = as_neighbours(tensor, source.heads);
      if (source.shift != 0) tensor = tensor.to(at::kFloat) + source.shift;
      write_rows(writer, tensor, tensors[i].type, name);
      folder.forget(name);
    }
    what.progress(static_cast<int64_t>(i) + 1, report.tensors);
  }
  writer.commit();
  return report;
}

}  // namespace apus
