// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/nearest.h"
#include "device/device.h"

namespace apus {
namespace fs = std::filesystem;

Json read_model_config(const fs::path& dir) {
  require(fs::is_directory(dir), Fault::Model, "the model folder ", dir.string(), " does not exist");
  const fs::path path = dir / "config.json";
  require(fs::exists(path), Fault::Model, dir.string(), " holds no config.json: it is no HuggingFace checkpoint");
  try {
    Json config = Json::parse(read_file(path, 16 << 20));
    require(config.is_object(), Fault::Model, path.string(), " must hold an object");
    return config;
  } catch (const nlohmann::json::exception& e) {
    fail(Fault::Model, path.string(), ": no valid JSON: ", e.what());
  }
}

at::ScalarType choose_dtype(const std::string& wanted, const Json& config, c10::Device device, std::string* note) {
  std::string name = wanted;
  for (const char* key : {"torch_dtype", "dtype"})
    if (name.empty() && config.contains(key) && config[key].is_string()) name = config[key].get<std::string>();
  if (name.empty()) name = "float32";
  const auto type = parse_float_type(name);
  require(type.has_value(), wanted.empty() ? Fault::Model : Fault::Usage, "dtype '", name,
          "' is not known; use float32, bfloat16 or float16");
  const DeviceKind& kind = kind_of(device);
  if (kind.supports(*type)) return *type;
  const at::ScalarType other = kind.supports(at::kBFloat16) ? at::kBFloat16 : at::kFloat;
  if (note)
    *note = str(name, " is not computed on ", kind.name(), "; the weights are held as ", float_type_name(other));
  return other;
}

namespace {

std::string parent_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

// Checkpoints of the bare backbone carry no "model." in front; some hold a shared weight under the other of its names.
std::string found_name(const std::string& name, const std::string& other, const TensorFolder& source) {
  const std::string prefix = "model.";
  if (source.find(name)) return name;
  if (name.starts_with(prefix) && source.find(name.substr(prefix.size()))) return name.substr(prefix.size());
  return !other.empty() && source.find(other) ? other : name;
}

std::vector<int64_t> piece_shape(const Param& p) {
  const auto pieces = static_cast<int64_t>(p.pieces.size());
  return {p.full[0] * p.full[1] / pieces, p.full[2]};  // [E, 2F, D] in 2E pieces: [F, D]
}

// Where a parameter stands on disk: in pieces, or as one tensor, as newer files may hold a stack too.
struct OnDisk {
  OnDisk(std::string name, Param& param, const TensorFolder& source) : name(std::move(name)), param(param) {
    whole = param.pieces.empty() || source.find(found_name(this->name, "", source));
    if (whole) names.push_back(this->name);
    if (!whole)
      for (const auto& piece : param.pieces) names.push_back(parent_of(this->name) + piece);
  }
  std::string name;
  Param& param;
  std::vector<std::string> names;
  bool whole = true;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t d : shape) parts.push_back(std::to_string(d));
  return "[" + join(parts) + "]";
}

bool is_number_of_a_weight(DiskType type) {
  return type == DiskType::F64 || type == DiskType::F32 || type == DiskType::F16 || type == DiskType::BF16 ||
         type == DiskType::F8E4M3 || type == DiskType::F8E5M2;
}

// What does not fit, collected over the whole model.
struct Problems {
  std::vector<std::string> missing, shapes, unexpected;
  static std::string listed(const char* title, const std::vector<std::string>& all) {
    if (all.empty()) return "";
    std::string text = str("\n  ", all.size(), " ", title, ":");
    for (size_t i = 0; i < all.size() && i < 20; ++i) text += "\n    " + all[i];
    if (all.size() > 20) text += str("\n    ... and ", all.size() - 20, " more");
    return text;
  }
  void raise_if_any() const {
    if (missing.empty() && shapes.empty()) return;
    fail(Fault::Model, "the checkpoint does not fit the model its config.json describes", listed("missing", missing),
         listed("of another shape or type", shapes), listed("not part of the model", unexpected),
         "\n  Is config.json the one these weights were saved with, and is the download complete?");
  }
};

// Buffers and leftovers that some tools save beside the weights.
bool is_harmless(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".masked_bias") || name.ends_with(".attn.bias") ||
         name == "lm_head.weight" || name.find(".mtp.") != std::string::npos || name.starts_with("mtp.");
}

c10::Device device_of(const std::string& name, const LoadOptions& options) {
  return options.place ? options.place(name) : options.device;
}

at::Tensor narrowed(at::Tensor t, const std::vector<Range>& part) {
  for (size_t d = 0; d < part.size(); ++d)
    if (part[d].size != t.size(static_cast<int64_t>(d)))
      t = t.narrow(static_cast<int64_t>(d), part[d].begin, part[d].size);
  return t.contiguous();
}

at::Tensor brought(const at::Tensor& disk, c10::Device device, at::ScalarType dtype, bool own) {
  at::Tensor t = disk;
  if (t.scalar_type() != dtype) t = t.to(dtype);
  if (t.device() != device) t = t.to(device);
  return own && t.is_same(disk) ? t.clone() : t;
}

void load_one(const OnDisk& from, const TensorFolder& source, const LoadOptions& options) {
  const auto& [name, p, names, whole] = from;
  const std::vector<Range> part = local_part(p.full, p.cuts, options.mesh);
  if (whole) {
    const at::Tensor disk = source.tensor(names[0]), mine = narrowed(disk, part);
    p.data = brought(mine, device_of(name, options), options.dtype, options.own(name));
    p.mapped = p.data.is_alias_of(disk);
    if (!p.mapped) source.forget(names[0]);
    return;
  }
  const auto shape = piece_shape(p);
  const int64_t each = static_cast<int64_t>(names.size()) / p.full[0];  // pieces of an expert
  require(part[1].size == p.full[1] && part[2].size == p.full[2], Fault::Bug, name,
          ": a stack of pieces is cut between pieces only");
  p.data = at::empty({part[0].size, p.full[1], p.full[2]},
                     at::TensorOptions().dtype(options.dtype).device(device_of(name, options)));
  at::Tensor rows = p.data.view({part[0].size * each, shape[0], shape[1]});
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const std::string& disk = names[static_cast<size_t>(part[0].begin * each + i)];
    rows[i].copy_(source.tensor(disk));
    source.forget(disk);
  }
}

}  // namespace

void load_weights(Module& model, const TensorFolder& source, const LoadOptions& options) {
  Problems problems;
  std::set<std::string> used;
  std::vector<OnDisk> plan;
  std::map<std::string, std::string> other_name;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) other_name[p.tied] = name;
  });
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) return;
    OnDisk& at = plan.emplace_back(name, p, source);
    const auto wanted = at.whole ? p.full : piece_shape(p);
    for (auto& disk : at.names) {
      disk = found_name(disk, at.whole ? other_name[name] : "", source);
      const TensorEntry* entry = source.find(disk);
      if (!entry) {
        problems.missing.push_back(disk);
      } else {
        used.insert(disk);
        if (!is_number_of_a_weight(entry->type))
          problems.shapes.push_back(str(disk, ": found ", disk_name(entry->type), ", expected floating point"));
        if (entry->shape != wanted)
          problems.shapes.push_back(str(disk, ": found ", shape_text(entry->shape), ", expected ", shape_text(wanted)));
      }
    }
  });
  for (const auto& name : source.names())
    if (!used.count(name) && !is_harmless(name)) problems.unexpected.push_back(name);
  problems.raise_if_any();
  require(problems.unexpected.empty(), Fault::Model,
          "the checkpoint holds tensors its config.json does not account for",
          Problems::listed("not part of the model", problems.unexpected));

  std::map<std::string, Param*> by_name;
  for (const OnDisk& from : plan) {
    load_one(from, source, options);
    by_name[from.name] = &from.param;
  }
  model.visit([&](const std::string& name, Param& p) {
    if (p.tied.empty()) return;
    require(by_name.count(p.tied), Fault::Bug, name, " is tied to ", p.tied, ", which does not exist");
    const Param& same = *by_name[p.tied];
    p.data = options.place ? same.data.to(options.place(name)) : same.data;  // on another device: a copy
    p.mapped = same.mapped && p.data.is_same(same.data);
  });
}

std::unique_ptr<Model> load_model(const fs::path& dir, const LoadOptions& options) {
  auto model = make_model(read_model_config(dir));
  load_weights(*model, TensorFolder(dir), options);
  return model;
}

void each_disk_tensor(Module& model, const std::function<void(const DiskTensor&)>& f) {
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) return;
    if (p.pieces.empty()) return f({name, p.data});
    const auto shape = piece_shape(p);
    const at::Tensor rows = p.data.view({static_cast<int64_t>(p.pieces.size()), shape[0], shape[1]});
    for (size_t i = 0; i < p.pieces.size(); ++i) f({parent_of(name) + p.pieces[i], rows[static_cast<int64_t>(i)]});
  });
}

}  // namespace apus
