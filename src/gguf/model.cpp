// SPDX-License-Identifier: Apache-2.0
#include "gguf/model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/nearest.h"
#include "gguf/import.h"
#include "gguf/import_tower.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// name-00001-of-00003.gguf; empty where the first part is not called so.
fs::path part_path(const fs::path& first, int64_t number, int64_t count) {
  char from[32], to[32];
  std::snprintf(from, sizeof from, "-%05d-of-%05d.gguf", 1, static_cast<int>(count));
  std::snprintf(to, sizeof to, "-%05d-of-%05d.gguf", static_cast<int>(number), static_cast<int>(count));
  const std::string name = first.filename();
  if (!name.ends_with(from)) return {};
  return first.parent_path() / (name.substr(0, name.size() - std::strlen(from)) + to);
}

bool is_of_positions(const std::string& name) {
  return name == kRopeFrequencies || name == kShortFactors || name == kLongFactors;
}

// Of a layer behind the last one, which guesses tokens ahead and is not read.
bool guesses_ahead(const std::string& name, int64_t layers) {
  return name.starts_with("blk.") && std::strtoll(name.c_str() + 4, nullptr, 10) >= layers;
}

// Of one tensor of the file, as the checkpoint has it.
std::vector<int64_t> shape_in_checkpoint(const GgufTensor& t, const GgufTurn& turn) {
  std::vector<int64_t> shape = t.shape;
  if (turn.adds_last && shape.size() > 1) shape.pop_back();
  if (const auto dims = static_cast<size_t>(turn.ones_first.checkpoint); dims > 0) {
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
    while (shape.size() < dims) shape.insert(shape.begin(), 1);
  }
  while (turn.row_shape && shape.size() > 2) shape[shape.size() - 2] *= shape.back(), shape.pop_back();
  if (turn.rows_of_one && shape.size() == 2) shape = {shape[0] * shape[1]};
  if (turn.heads && shape.size() == 3)
    shape = turn.heads_turned ? std::vector<int64_t>{shape[0] * shape[2], shape[1]}
                              : std::vector<int64_t>{shape[0] * shape[1], shape[2]};
  return shape;
}

std::string with_beginning(const std::string& name, const std::vector<std::pair<std::string, std::string>>& begins) {
  for (const auto& [from, to] : begins)
    if (name.starts_with(from)) return to + name.substr(from.size());
  return name;
}

void refuse_unknown(std::vector<std::string> unknown, const std::string& where, const std::string& kind) {
  const size_t strangers = unknown.size();
  if (strangers > 8) unknown.resize(8), unknown.push_back("...");
  require(strangers == 0, Fault::Model, where, ": ", strangers, " tensors are not known in the architecture '", kind,
          "': ", join(unknown));
}

}  // namespace

std::shared_ptr<const GgufModel> GgufModel::open(const fs::path& path, const fs::path& tower) {
  return std::shared_ptr<const GgufModel>(new GgufModel(path, tower));
}

std::shared_ptr<const GgufModel> GgufModel::in_folder(const fs::path& dir) {
  const fs::path link = dir / kGgufFile;
  const fs::path tower = dir / kGgufTowerFile;
  if (!fs::exists(link)) return nullptr;
  return open(fs::read_symlink(link), fs::exists(tower) ? fs::read_symlink(tower) : fs::path());
}

void GgufModel::open_part(const fs::path& path) {
  auto mapped = std::make_unique<MappedFile>(path);
  GgufHeader header = parse_gguf(mapped->data(), mapped->size(), path.string());
  for (const GgufTensor& tensor : header.tensors) {
    data_.push_back(mapped->data() + tensor.begin);
    if (!is_of_positions(tensor.name) || tensor.type != GgmlType::F32) continue;
    std::vector<float>& factors = (files_.empty() ? header : header_).factors_of[tensor.name];
    factors.resize(static_cast<size_t>(tensor.numel()));
    std::memcpy(factors.data(), data_.back(), factors.size() * sizeof(float));
  }
  if (files_.empty())
    header_ = std::move(header);
  else
    for (GgufTensor& tensor : header.tensors) header_.tensors.push_back(std::move(tensor));
  files_.push_back(std::move(mapped));
}

void GgufModel::open_parts(const fs::path& path) {
  open_part(path);
  const int64_t count = header_.integer("split.count").value_or(1);
  require(count >= 1 && count < 100000 && header_.integer("split.no").value_or(0) == 0, Fault::Model, path.string(),
          ": this is a later part of a model; give the first, -00001-of-....gguf");
  for (int64_t i = 2; i <= count; ++i) {
    const fs::path part = part_path(path, i, count);
    require(!part.empty(), Fault::Model, path.string(), ": the first of ", count,
            " parts must be called NAME-00001-of-..., so that the others can be found");
    require(fs::exists(part), Fault::Model, path.string(), ": part ", i, " of ", count, " is missing: ", part.string());
    open_part(part);
  }
  if (const auto all = header_.integer("split.tensors.count"))
    require(*all == std::ssize(header_.tensors), Fault::Model, path.string(), ": its ", count, " parts have ",
            header_.tensors.size(), " tensors, where 'split.tensors.count' says ", *all);
}

GgufModel::GgufModel(const fs::path& path, const fs::path& tower) {
  open_parts(path);
  if (!tower.empty()) {
    tower_files_.push_back(std::make_unique<MappedFile>(tower));
    tower_header_ = parse_gguf(tower_files_[0]->data(), tower_files_[0]->size(), tower.string());
    seeing_ = tower_of_files(header_, tower_header_);
    family_ = seeing_->text(/*alone=*/false);
  } else {
    family_ = family_of_file(header_);
  }
  const Json text = config_of_gguf(header_, family_);
  config_ = text;
  AllFound found;
  find_places(found);
  add(found, GgufSizes::of_config(text));
  add_numbers();
  if (seeing_) add_tower();
}

void GgufModel::add(const AllFound& found, const GgufSizes& sizes) {
  for (const auto& [name, parts] : found) {
    const GgufSlice slice = slice_of(name, parts, sizes);
    if (!slice.holds_mxfp4()) {
      tensors_[name] = slice;
      continue;
    }
    tensors_[name + "_blocks"] = slice.as_bytes(GgufSlice::Bytes::Blocks);
    tensors_[name + "_scales"] = slice.as_bytes(GgufSlice::Bytes::Scales);
  }
}

void GgufModel::add_numbers() {
  const auto layers = config_["num_hidden_layers"].get<int64_t>();
  for (const GgufNumber& number : family_.form.numbers) {
    const GgufValue::Numbers* said = header_.numbers(number.gguf);
    require(said && std::ssize(*said) == layers, Fault::Model, header_.where, ": '", number.gguf, "' has ",
            said ? said->size() : 0, " numbers, the model ", layers, " layers");
    numbers_.emplace_back(said->begin(), said->end());
    for (int64_t i = 0; i < layers; ++i)
      tensors_[str(family_.form.layers, i, ".", number.hf)] = {
          number.shape,
          1,
          1,
          {{GgmlType::F32, reinterpret_cast<const std::byte*>(&numbers_.back()[static_cast<size_t>(i)]), sizeof(float),
            1}}};
  }
}

void GgufModel::add_tower() {
  const GgufTower& tower = seeing_->tower;
  config_ = config_of_tower(header_, tower_header_, *seeing_, config_);
  const Json& vision = config_["vision_config"];
  const GgufForm form = form_of_tower(tower, vision);
  const bool swapped = has_swapped_names(tower_header_);
  AllFound found;
  std::vector<std::string> unknown;
  for (const GgufTensor& t : tower_header_.tensors) {
    if (t.name == tower.row.second) continue;
    const auto place = place_in_checkpoint(swapped ? with_swapped_name(t.name) : t.name, form);
    if (place)
      found[place->name].push_back({&t, tower_files_[0]->data() + t.begin, place->turn});
    else
      unknown.push_back(t.name);
  }
  refuse_unknown(std::move(unknown), tower_header_.where, tower.projector);
  add(found, sizes_of_tower(tower_header_, vision));
}

void GgufModel::find_places(AllFound& found) {
  std::vector<std::string> unknown;
  const auto layers = config_["num_hidden_layers"].get<int64_t>();
  for (size_t i = 0; i < header_.tensors.size(); ++i) {
    const GgufTensor& t = header_.tensors[i];
    if (is_of_positions(t.name) || guesses_ahead(t.name, layers)) continue;
    auto place = place_in_checkpoint(t.name, family_.form);
    if (place && seeing_) place->name = with_beginning(place->name, seeing_->tower.begins);
    const size_t star = place ? place->name.find('*') : 0;
    if (!place || (star != std::string::npos && (t.shape.size() < 2 || place->turn.rows))) {
      unknown.push_back(t.name);
    } else if (star == std::string::npos) {
      found[place->name].push_back({&t, data_[i], place->turn});
    } else {
      require(t.shape[0] <= 65536, Fault::Model, header_.where, ": tensor '", t.name, "': ", t.shape[0], " experts");
      const int64_t each = t.shape[0] > 0 ? t.bytes / t.shape[0] : 0;
      for (int64_t e = 0; e < t.shape[0]; ++e)
        tensors_[place->name.substr(0, star) + std::to_string(e) + place->name.substr(star + 1)] = {
            {t.shape.begin() + 1, t.shape.end()},
            t.shape.size() == 3 ? t.shape[1] : 1,
            t.shape.back(),
            {{t.type, data_[i] + e * each, each, t.shape.size() == 3 ? t.shape[1] : 1}}};
    }
  }
  refuse_unknown(std::move(unknown), header_.where, family_.form.architecture);
}

GgufSlice GgufModel::slice_of(const std::string& name, const std::vector<Found>& found, const GgufSizes& sizes) const {
  const GgufTurn& turn = found[0].turn;
  GgufSlice slice{.turned = turn.turned && found[0].tensor->shape.size() > 1, .numbers = turn.numbers};
  const bool ordered = found.size() > 1 || turn.rows;
  int64_t all = 0;
  bool numbers = false;  // of a bias, which are rows where there is an order
  for (const Found& f : found) {
    const std::vector<int64_t> shape = shape_in_checkpoint(*f.tensor, f.turn);
    numbers = ordered && (shape.size() == 1 || name.ends_with("bias"));
    const int64_t width = numbers ? 1 : shape.back();
    const int64_t rows = numbers ? shape.back() : shape.size() > 1 ? shape[shape.size() - 2] : 1;
    if (slice.parts.empty()) slice.shape = shape, slice.width = width;
    require(slice.width == width && slice.shape.size() == shape.size(), Fault::Model, header_.where, ": tensor '",
            f.tensor->name, "' does not fit with '", found[0].tensor->name, "'");
    require(!numbers || !ggml_form(f.tensor->type).quantised(), Fault::Model, header_.where, ": tensor '",
            f.tensor->name, "' is a bias in the format ", ggml_form(f.tensor->type).name);
    slice.parts.push_back(
        {f.tensor->type, f.data, f.tensor->bytes, rows, f.turn.heads_turned ? f.tensor->shape.back() : 0});
    all += rows;
  }
  if (numbers)
    slice.shape.back() = all;
  else if (slice.shape.size() > 1)
    slice.shape[slice.shape.size() - 2] = all;
  if (ordered) slice.order = order_of(found, slice.parts, sizes, all);
  int64_t count = 1;
  for (const int64_t d : slice.shape) count *= d;
  if (slice.turned) {
    std::swap(slice.shape[slice.shape.size() - 2], slice.shape.back());
    slice.width = slice.shape.back();
  }
  slice.rows = slice.width > 0 ? count / slice.width : 0;
  // (Not in the bias of a convolution.)
  if (turn.drops_one && !name.ends_with(".bias"))
    slice.shape.insert(slice.shape.begin() + (slice.shape.size() > 1 ? 1 : 0), 1);
  if (turn.groups > 0 && slice.shape.size() > 1) {
    const auto rows = slice.shape.end() - 2;
    require(*rows % turn.groups == 0, Fault::Model, header_.where, ": tensor '", found[0].tensor->name, "' has no ",
            turn.groups, " groups of rows");
    *rows /= turn.groups;
    slice.shape.insert(slice.shape.end() - 2, turn.groups);
  }
  if (turn.scales) slice.scales = turn.scales(sizes, slice.parts[0].rows);
  if (std::all_of(slice.scales.begin(), slice.scales.end(), [](float f) { return f == 1; })) slice.scales.clear();
  if (turn.columns && slice.shape.size() > 1) slice.columns = turn.columns(sizes, slice.width);
  return slice;
}

std::shared_ptr<const GgufModel::Order> GgufModel::order_of(const std::vector<Found>& found,
                                                            const std::vector<GgufPart>& parts, const GgufSizes& sizes,
                                                            int64_t all) const {
  auto order = std::make_shared<Order>(static_cast<size_t>(all), std::pair<int32_t, int64_t>{-1, 0});
  for (size_t p = 0; p < found.size(); ++p) {
    const GgufTurn& turn = found[p].turn;
    const GgufTurn::Rows rows = turn.rows ? turn.rows(sizes, all) : GgufTurn::Rows();
    bool fits = std::ssize(rows) == parts[p].rows;
    for (size_t i = 0; fits && i < rows.size(); ++i) {
      fits = rows[i] >= 0 && rows[i] < all && (*order)[static_cast<size_t>(rows[i])].first < 0;
      if (fits) (*order)[static_cast<size_t>(rows[i])] = {static_cast<int32_t>(p), static_cast<int64_t>(i)};
    }
    require(fits, Fault::Model, header_.where, ": tensor '", found[p].tensor->name, "' has ", parts[p].rows,
            " rows, where the file's settings mean ", rows.size(), ", or one that belongs to it is missing");
  }
  return order;
}

const GgufSlice* GgufModel::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

bool GgufModel::maps(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto* files : {&files_, &tower_files_})
    for (const auto& file : *files)
      if (at >= file->data() && at < file->data() + file->size()) return true;
  return false;
}

void GgufModel::forget(const std::string& name) const {
  const GgufSlice* slice = find(name);
  if (!slice) return;
  for (const GgufPart& part : slice->parts)
    for (const auto* files : {&files_, &tower_files_})
      for (const auto& file : *files)
        if (const std::byte* begin = file->data(); part.data >= begin && part.data < begin + file->size())
          file->forget(part.data - begin, part.bytes);
}

int64_t GgufModel::bytes() const {
  int64_t sum = 0;
  for (const auto* files : {&files_, &tower_files_})
    for (const auto& file : *files) sum += file->size();
  return sum;
}

}  // namespace apus
