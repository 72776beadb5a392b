// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <map>
#include <set>

#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"
#include "checkpoint/made_ahead.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/names.h"
#include "checkpoint/shards.h"
#include "checkpoint/unread_tensors.h"
#include "device/device.h"
#include "dist/mesh.h"
#include "models/spec/config.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/parts.h"
#include "ops/quantised.h"

namespace apus {
namespace fs = std::filesystem;

Json read_model_config(const fs::path& dir) {
  require(fs::is_directory(dir), Fault::Model, "the model folder ", dir.string(), " does not exist");
  const fs::path path = dir / kModelConfigFile;
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
  if (name.empty()) name = weights_dtype(config);
  // Numbers packed into fewer bits are taken out as the type that such files are made of.
  if (name.empty()) name = config.contains("quantization_config") ? "bfloat16" : "float32";
  const auto type = parse_float_type(name);
  require(type.has_value(), wanted.empty() ? Fault::Model : Fault::Usage, "dtype '", name,
          "' is not known; use float32, bfloat16 or float16");
  const DeviceKind& kind = kind_of(device);
  if (kind.supports(*type)) return *type;
  // The other type of two bytes, so that what fits stays so; f64 loses least as f32.
  const at::ScalarType half = *type == at::kHalf ? at::kBFloat16 : at::kHalf;
  const at::ScalarType other = *type != at::kDouble && kind.supports(half) ? half : at::kFloat;
  if (note)
    *note = str(name, " is not computed on ", kind.name(), "; the weights are held as ", float_type_name(other),
                other == at::kHalf ? ", whose largest number is 65504" : "");
  return other;
}

namespace {

// What newer files of transformers call it.
std::string newer_name(const std::string& name) {
  const std::string block = ".block_sparse_moe.";
  const size_t at = name.find(block);
  return at == std::string::npos ? name : name.substr(0, at) + ".mlp." + name.substr(at + block.size());
}

// The name that a tensor has in this checkpoint: that of its form; that of newer files; without that of the backbone;
// or, of a weight that two layers share, the other of its names.
struct FoundName {
  const TensorFolder& source;
  const std::string backbone;
  const DiskForm& form;
  std::string operator()(const std::string& name, const std::string& other) const {
    const std::string disk = form.disk_name(name), twin = form.disk_name(other);
    if (source.find(disk)) return disk;
    if (const std::string newer = newer_name(name); source.find(newer)) return newer;
    if (const std::string bare = bare_name(name, backbone); source.find(bare)) return bare;
    return !other.empty() && source.find(twin) ? twin : disk;
  }
};

// The form of the model's in which most of its tensors are there as they should be.
DiskForm form_of(Model& model, const TensorFolder& source) {
  std::vector<DiskForm> forms = model.disk_forms();
  size_t best = 0;
  int64_t most = -1;
  for (size_t i = 0; i < forms.size() && forms.size() > 1; ++i) {
    int64_t fits = 0;
    for (const DiskShape& t : disk_shapes(model, forms[i]))
      if (const TensorEntry* entry = source.find(t.name)) fits += entry->shape == t.shape;
    if (fits > most) best = i, most = fits;
  }
  return forms[best];
}

// Of families in which config.json is not to be trusted with it.
void settle_tying(Model& model, const TensorFolder& source) {
  if (!model.file_decides_tying() || model.head_kind() != Head::Vocab) return;
  const std::string head = model.head_name() + ".weight", table = model.embed_name() + ".weight";
  const bool in_file = source.find(model.disk_form().disk_name(head)) != nullptr;
  model.visit([&](const std::string& name, Param& p) {
    if (name == head) p.tied = in_file ? "" : table;
  });
}

// Convolutions that are put together when they are used are cut where the file cuts them: transformers writes equal
// parts, whatever each of them convolves.
void settle_convolutions(Model& model, const TensorFolder& source, const FoundName& found) {
  std::map<std::string, std::vector<std::pair<Param*, const TensorEntry*>>> groups;
  model.visit([&](const std::string& name, Param& p) {
    if (name.ends_with("_conv1d.weight"))
      groups[module_of(module_of(name))].emplace_back(&p, source.find(found(name, "")));
  });
  for (const auto& [layer, group] : groups) {
    int64_t own = 0, there = 0;
    bool whole = true, same = true;
    for (const auto& [p, entry] : group) {
      const bool alike = entry && entry->shape.size() == p->full.size() && entry->shape.back() == p->full.back();
      own += p->full[0], there += alike ? entry->shape[0] : 0;
      whole = whole && p->part[0].size == p->full[0], same = same && alike && entry->shape[0] == p->full[0];
    }
    if (own != there || same || !whole) continue;
    for (const auto& [p, entry] : group) p->full[0] = entry->shape[0], p->part[0] = {0, entry->shape[0]};
  }
}

// Of one tensor that holds all of it: gates lie before ups.
std::vector<int64_t> one_tensor_shape(const Param& p) {
  if (has_no_dimensions(p)) return {};
  if (p.pieces.empty() || p.full.size() != 4) return p.full;
  return {p.full[0], p.full[1] * p.full[2], p.full[3]};
}

// Where a parameter stands on disk: in pieces; as one tensor, as newer files may hold a stack too; as MXFP4 in two.
struct OnDisk {
  OnDisk(std::string own, Param& param, const FoundName& found) : name(std::move(own)), param(param) {
    const bool there = found.source.find(found(name, ""));
    packed = !there && param.turned && found.source.find(found(name + kMxfp4Blocks, ""));
    whole = param.pieces.empty() || there;
    transposed = whole && (param.turned || found.form.is_transposed(name));
    if (packed)
      tensors = mxfp4_shapes(name, param.full);
    else if (whole)
      tensors.push_back({name, one_tensor_shape(param)});
    else
      tensors = disk_shapes(name, param);
    std::vector<int64_t>& shape = tensors[0].shape;
    if (transposed && !packed) std::swap(shape.at(shape.size() - 2), shape.back());
    if (param.flat) shape = {shape[0] * shape[1], shape[2]};
    quantised_layer.resize(tensors.size());
  }
  std::string name;
  Param& param;
  std::vector<DiskShape> tensors;
  std::vector<std::string> quantised_layer;  // of each of them: its layer in the file; empty: it is plain
  bool whole = true, transposed = false, packed = false;
  bool held = false;      // quantised, by a layer that multiplies by it so
  at::Tensor fresh = {};  // its values, where the checkpoint has none
};

c10::Device device_of(const std::string& name, const LoadOptions& options) {
  return options.place ? options.place(name) : options.device;
}

// The layers whose weight may stay quantised: their products are all made by ops::linear.
// Losses multiply by a head themselves.
std::set<std::string> holding_layers(Model& model, const LoadOptions& options) {
  // Parts of them on several ranks or devices are plain.
  const bool words = options.answers_only && !options.place && !model.mesh() && options.quantised->holds_words();
  std::set<std::string> names;
  model.visit_modules([&](const std::string& name, Module& module) {
    const bool of_words = name == model.head_name() || dynamic_cast<Embedding*>(&module);
    if (of_words ? words : dynamic_cast<Linear*>(&module) != nullptr) names.insert(name + ".weight");
  });
  return names;
}

// Experts that are read alone: where products with codes are as fast as with plain numbers.
bool may_hold_stack(const OnDisk& stack, const LoadOptions& options) {
  if (!ops::multiplies_codes(device_of(stack.name, options), options.dtype)) return false;
  if (!stack.packed) return options.quantised && !options.made_plain && !stack.param.pieces.empty();
  return options.answers_only && stack.tensors[1].shape[2] * 32 == stack.param.full[2];
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

at::Tensor brought(const at::Tensor& disk, c10::Device device, at::ScalarType dtype, bool own) {
  at::Tensor t = disk;
  if (t.scalar_type() != dtype) t = t.to(dtype);
  if (t.device() != device) t = t.to(device);
  return own && t.is_same(disk) ? t.clone() : t;
}

quant::Shape matrix_shape(const DiskShape& tensor) {
  require(tensor.shape.size() == 2, Fault::Model, tensor.name, ": only matrices can be quantised, and the model has ",
          shape_text(tensor.shape), " there");
  return {tensor.shape[0], tensor.shape[1]};
}

// One of a parameter's tensors, plain.
at::Tensor plain_tensor(const OnDisk& from, size_t i, const TensorFolder& source, const LoadOptions& options) {
  if (from.quantised_layer[i].empty()) return source.tensor(from.tensors[i].name, options.dtype);
  const auto matrix = options.quantised->open(from.quantised_layer[i], matrix_shape(from.tensors[i]));
  return ops::dequantised(*matrix, 0, matrix->shape().rows, options.dtype == at::kDouble ? at::kFloat : options.dtype);
}

// Which of a parameter's tensors are this rank's, and what of each of them.
struct Own {
  size_t first, end;
  quant::Cutout mine;
};
Own own_of(const OnDisk& from) {
  const Param& p = from.param;
  const Range &out = p.part[p.part.size() - 2], &in = p.part.back();
  const quant::Cutout mine{out.begin, in.begin, {out.size, in.size}};
  if (p.full.size() == 2) return {0, static_cast<size_t>(mine.shape.count() > 0), mine};
  const auto each = from.tensors.size() / static_cast<size_t>(p.full[0]), first = static_cast<size_t>(p.part[0].begin),
             count = static_cast<size_t>(p.part[0].size);
  return {first * each, (first + count) * each, mine};
}

at::Tensor part_of(const at::Tensor& matrix, const quant::Cutout& mine) {
  return matrix.narrow(0, mine.row, mine.shape.rows).narrow(1, mine.column, mine.shape.columns);
}

// Of packed experts, whose files are two tensors.
void require_whole_experts(const OnDisk& from) {
  const Param& p = from.param;
  require(p.part[1].size == p.full[1] && p.part[2].size == p.full[2], Fault::Bug, from.name,
          ": packed experts are cut between experts only");
}

at::Tensor held_mxfp4(const OnDisk& from, const TensorFolder& source, const LoadOptions& options) {
  require_whole_experts(from);
  const at::Tensor blocks = source.tensor(from.tensors[0].name), scales = source.tensor(from.tensors[1].name);
  const Range& own = from.param.part[0];
  const auto entry = [&](int64_t e) {
    return ops::StackEntry{mxfp4_matrix(blocks[own.begin + e], scales[own.begin + e]), {}};
  };
  const at::Tensor weight = ops::quantised_stack(own.size, entry, from.param.local_shape(), options.dtype,
                                                 device_of(from.name, options), options.products);
  for (const DiskShape& t : from.tensors) source.forget(t.name);
  return weight;
}

// This rank's part of a parameter that is held quantised, but for single tensors that are plain.
at::Tensor held_part(const OnDisk& from, const TensorFolder& source, const LoadOptions& options) {
  if (from.packed) return held_mxfp4(from, source, options);
  const auto [first, end, mine] = own_of(from);
  const c10::Device device = device_of(from.name, options);
  const auto entry = [&, first = first, &mine = mine](int64_t at) -> ops::StackEntry {
    const size_t i = first + static_cast<size_t>(at);
    const std::string& layer = from.quantised_layer[i];
    if (!layer.empty()) return {options.quantised->open(layer, matrix_shape(from.tensors[i]), mine), {}};
    const at::Tensor part = part_of(plain_tensor(from, i, source, options), mine);
    at::Tensor plain = brought(part, device, options.dtype, /*own=*/true);
    source.forget(from.tensors[i].name);
    return {nullptr, std::move(plain)};
  };
  const bool alone = from.param.full.size() == 2;
  at::Tensor weight = alone ? ops::quantised_tensor(entry(0).matrix, options.dtype, device, options.products)
                            : ops::quantised_stack(static_cast<int64_t>(end - first), entry, from.param.local_shape(),
                                                   options.dtype, device, options.products);
  for (size_t i = first; i < end; ++i)
    if (!from.quantised_layer[i].empty() && !ops::in_its_format(weight, static_cast<int64_t>(i - first)))
      options.quantised->forget(from.quantised_layer[i]);
  return weight;
}

void load_one(const OnDisk& from, const TensorFolder& source, const LoadOptions& options, const MeshView* mesh) {
  const auto& [name, p, tensors, quantised_layer, whole, transposed, packed, held, fresh] = from;
  const at::ScalarType dtype = p.statistic ? at::kFloat : options.dtype;
  const std::vector<int64_t> local = p.local_shape();
  if (is_elsewhere(p, mesh) || (held && c10::multiply_integers(local) == 0)) {
    p.data = at::empty(local, at::TensorOptions().dtype(dtype).device(device_of(name, options)));
    return;
  }
  if (held) {
    p.data = held_part(from, source, options);
    return;
  }
  if (fresh.defined()) {
    p.data = brought(own_part(fresh, p).contiguous(), device_of(name, options), dtype, /*own=*/true);
    return;
  }
  if (packed) {
    const auto mine = [&, &p = p](const DiskShape& t) {
      return source.tensor(t.name).narrow(0, p.part[0].begin, p.part[0].size).contiguous();
    };
    require_whole_experts(from);
    p.data = mxfp4_values(mine(tensors[0]), mine(tensors[1]), dtype).to(device_of(name, options));
    for (const DiskShape& t : tensors) source.forget(t.name);
    return;
  }
  if (whole) {
    const at::Tensor stored = plain_tensor(from, 0, source, options),
                     apart = p.flat ? stored.unflatten(0, {p.full[0], -1}) : stored,
                     disk = (transposed ? apart.transpose(-2, -1) : apart).reshape(p.full),
                     mine = own_part(disk, p).contiguous();
    p.data = brought(mine, device_of(name, options), dtype, options.own(name));
    p.mapped = p.data.is_alias_of(disk) && quantised_layer[0].empty() && source.maps(disk);
    if (!p.mapped) source.forget(tensors[0].name);
    return;
  }
  const auto [first, end, mine] = own_of(from);
  p.data = at::empty(local, at::TensorOptions().dtype(options.dtype).device(device_of(name, options)));
  at::Tensor rows = p.data.view({static_cast<int64_t>(end - first), mine.shape.rows, mine.shape.columns});
  for (size_t i = first; i < end; ++i) {
    rows[static_cast<int64_t>(i - first)].copy_(part_of(plain_tensor(from, i, source, options), mine));
    source.forget(tensors[i].name);
  }
}

// Those that are held, in the order in which they are read.
std::vector<MadeAhead::Wanted> wanted_layers(const std::vector<OnDisk>& plan, const MeshView* mesh) {
  std::vector<MadeAhead::Wanted> wanted;
  for (const OnDisk& from : plan) {
    if (!from.held || from.packed || is_elsewhere(from.param, mesh)) continue;
    const auto [first, end, mine] = own_of(from);
    for (size_t i = first; i < end; ++i)
      if (!from.quantised_layer[i].empty())
        wanted.push_back({from.quantised_layer[i], matrix_shape(from.tensors[i]), mine});
  }
  return wanted;
}
size_t most_at_once() { return static_cast<size_t>(std::min(at::get_num_threads(), 8)); }

// Names of the tensors of a quantised weight, where this is one; `layer` becomes its layer's name in the file.
std::vector<std::string> quantised_tensors(const std::string& weight, const std::string& backbone,
                                           const LoadOptions& options, std::string& layer) {
  if (!options.quantised || !weight.ends_with(".weight")) return {};
  for (const std::string& name : {module_of(weight), bare_name(module_of(weight), backbone)}) {
    if (name.empty()) continue;
    auto tensors = options.quantised->tensors(name);
    if (tensors.empty()) continue;
    layer = name;
    return tensors;
  }
  return {};
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t d : shape) parts.push_back(std::to_string(d));
  return "[" + join(parts) + "]";
}

UnreadTensors load_weights(Model& model, const TensorFolder& source, const LoadOptions& options) {
  Problems problems;
  std::set<std::string> used;
  std::vector<OnDisk> plan;
  model.set_disk_form(form_of(model, source));
  settle_tying(model, source);
  const FoundName found_name{source, model.backbone_name(), model.disk_form()};
  settle_convolutions(model, source, found_name);
  std::map<std::string, std::string> other_name;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) other_name[p.tied] = name;
  });
  const bool holds = options.quantised && !options.made_plain;
  const std::set<std::string> holding = holds ? holding_layers(model, options) : std::set<std::string>();
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) return;
    OnDisk& at = plan.emplace_back(name, p, found_name);
    const bool stack = at.packed || !at.whole;
    const bool may_hold = stack ? may_hold_stack(at, options) : holding.count(name) > 0;
    at.held = at.packed && may_hold;
    for (size_t i = 0; i < at.tensors.size(); ++i) {
      auto& [disk, wanted, own_type] = at.tensors[i];
      if (options.quantised && (may_hold || options.quantised->holds_any_layer())) {
        const auto tensors = quantised_tensors(disk, model.backbone_name(), options, at.quantised_layer[i]);
        used.insert(tensors.begin(), tensors.end());
        at.held |= may_hold && !tensors.empty();
        if (!tensors.empty()) continue;
      }
      disk = found_name(disk, at.whole ? other_name[name] : "");
      const TensorEntry* entry = source.find(disk);
      if (!entry && options.fresh) at.fresh = options.fresh(name, p.full);
      if (at.fresh.defined()) continue;
      if (!entry) {
        problems.missing.push_back(disk);
      } else {
        used.insert(disk);
        if (at.packed  ? entry->type != DiskType::U8
            : p.counts ? entry->type != DiskType::I64 && entry->type != DiskType::I32
                       : !is_number_of_a_weight(entry->type))
          problems.shapes.push_back(str(disk, ": found ", disk_name(entry->type), ", expected ",
                                        at.packed  ? "bytes (U8)"
                                        : p.counts ? "whole numbers (I64)"
                                                   : "floating point"));
        if (entry->shape != wanted)
          problems.shapes.push_back(str(disk, ": found ", shape_text(entry->shape), ", expected ", shape_text(wanted)));
      }
    }
  });
  UnreadTensors unread;
  if (!options.part_only) unread = unread_tensors(model, source, used, problems.unexpected);
  require_guess_head(model, problems.missing);
  problems.raise_if_any();
  require(problems.unexpected.empty(), Fault::Model,
          "the checkpoint holds tensors its config.json does not account for",
          Problems::listed("not part of the model", problems.unexpected));
  tell_unread(unread, model);

  LoadOptions how = options;
  std::unique_ptr<MadeAhead> ahead;
  if (options.quantised && options.quantised->makes_them() && at::get_num_threads() > 1) {
    ahead = std::make_unique<MadeAhead>(*options.quantised, wanted_layers(plan, model.mesh()), most_at_once());
    how.quantised = ahead.get();
  }
  std::map<std::string, Param*> by_name;
  for (const OnDisk& from : plan) {
    load_one(from, source, how, model.mesh());
    by_name[from.name] = &from.param;
    if (options.filled) options.filled(from.name, from.param);
  }
  model.visit([&](const std::string& name, Param& p) {
    if (p.tied.empty()) return;
    require(by_name.count(p.tied), Fault::Bug, name, " is tied to ", p.tied, ", which does not exist");
    const Param& same = *by_name[p.tied];
    p.data = options.place ? same.data.to(options.place(name)) : same.data;  // on another device: a copy
    p.mapped = same.mapped && p.data.is_same(same.data);
  });
  return unread;
}

std::unique_ptr<Model> load_model(const fs::path& dir, const LoadOptions& options) {
  const Json config = read_model_config(dir);
  auto model = make_model(config);
  const TensorFolder source(dir);
  const auto quantised = quantised_weights(config, {}, dir);
  LoadOptions with = options;
  with.quantised = quantised.get();
  load_weights(*model, source, with);
  return model;
}

void save_weights(Model& model, const fs::path& dir, int64_t max_shard, at::ScalarType dtype, const Carried& carried) {
  std::unique_ptr<ShardsWriter> writer;  // of the first rank; the others give their parts
  if (!model.mesh() || model.mesh()->layout().first()) {
    std::vector<SafetensorsWriter::Spec> tensors;
    for (const DiskShape& t : disk_shapes(model, model.disk_form()))
      tensors.push_back({t.name, t.type.value_or(dtype), t.shape});
    for (const std::string& name : carried.names) {
      const at::Tensor t = carried.source->tensor(name);
      tensors.push_back({name, t.scalar_type(), t.sizes().vec()});
    }
    writer = std::make_unique<ShardsWriter>(dir, tensors, max_shard);
  }
  std::exception_ptr failed;  // the others gather to the end, and must not wait for this rank
  const auto write = [&](const DiskTensor& t) {
    if (!writer || failed) return;
    try {
      writer->add(t.name, t.data);
    } catch (const Error&) {
      failed = std::current_exception();
    }
  };
  each_disk_tensor(model, write, model.disk_form());
  for (const std::string& name : carried.names)
    if (writer) write({name, carried.source->tensor(name)});
  if (failed) std::rethrow_exception(failed);
  if (writer) writer->commit();
}

}  // namespace apus
