// SPDX-License-Identifier: Apache-2.0
#include "gguf/model.h"

#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/nearest.h"

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

}  // namespace

int64_t GgufSlice::width() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return rows() > 0 ? n / rows() : 0;
}

const std::byte* GgufSlice::row(int64_t i) const {
  const int64_t row_bytes = ggml_bytes(ggml_form(type), width());
  if (heads == 0) return data + i * row_bytes;
  const int64_t size = rows() / heads, head = i / size, in_head = i % size;
  const int64_t half = in_head / (size / 2), j = in_head % (size / 2);
  return data + (head * size + 2 * j + half) * row_bytes;
}

void GgufSlice::read_rows(int64_t first, int64_t count, float* out) const {
  if (heads == 0)
    ggml_read(type, row(first), out, count * width());
  else
    for (int64_t i = 0; i < count; ++i) ggml_read(type, row(first + i), out + i * width(), width());
  for (int64_t i = 0; shift != 0 && i < count * width(); ++i) out[i] -= static_cast<float>(shift);
}

std::shared_ptr<const GgufModel> GgufModel::open(const fs::path& path) {
  return std::shared_ptr<const GgufModel>(new GgufModel(path));
}

std::shared_ptr<const GgufModel> GgufModel::in_folder(const fs::path& dir) {
  const fs::path link = dir / kGgufFile;
  return fs::exists(link) ? open(fs::canonical(link)) : nullptr;
}

GgufModel::GgufModel(const fs::path& path) {
  const auto add_part = [&](const fs::path& file) {
    auto mapped = std::make_unique<MappedFile>(file);
    GgufHeader header = parse_gguf(mapped->data(), mapped->size(), file.string());
    parts_.push_back({std::move(mapped), std::move(header)});
  };
  add_part(path);
  const int64_t count = header().integer("split.count").value_or(1);
  require(count >= 1 && count < 100000 && header().integer("split.no").value_or(0) == 0, Fault::Model, path.string(),
          ": this is a later part of a model; give the first, -00001-of-....gguf");
  for (int64_t i = 2; i <= count; ++i) {
    const fs::path part = part_path(path, i, count);
    require(!part.empty(), Fault::Model, path.string(), ": the first of ", count,
            " parts must be called NAME-00001-of-..., so that the others can be found");
    require(fs::exists(part), Fault::Model, path.string(), ": part ", i, " of ", count, " is missing: ", part.string());
    add_part(part);
  }
  const std::string architecture = header().text("general.architecture");
  require(!architecture.empty(), Fault::Model, path.string(), ": 'general.architecture' is missing: no language model");
  family_ = &family_of_architecture(architecture, path.string());
  std::vector<std::string> unknown;
  for (const Part& part : parts_)
    for (const GgufTensor& tensor : part.header.tensors) add(part, tensor, unknown);
  const size_t strangers = unknown.size();
  if (strangers > 8) unknown.resize(8), unknown.push_back("...");
  require(strangers == 0, Fault::Model, path.string(), ": ", strangers, " tensors are not known in the architecture '",
          architecture, "': ", join(unknown));
}

// Of a matrix whose rows turn in pairs of neighbours.
int64_t GgufModel::heads_of(const std::string& gguf) const {
  const bool q = gguf.find(".attn_q.") != std::string::npos, k = gguf.find(".attn_k.") != std::string::npos;
  if (!family_->neighbours || (!q && !k)) return 0;
  const auto all = header().integer(key("attention.head_count"));
  require(all && *all > 0, Fault::Model, header().where, ": '", key("attention.head_count"), "' is missing");
  return q ? *all : header().integer(key("attention.head_count_kv")).value_or(*all);
}

void GgufModel::add(const Part& part, const GgufTensor& t, std::vector<std::string>& unknown) {
  const std::byte* data = part.file->data() + t.begin;
  for (const char* name : {kRopeFrequencies, kShortFactors, kLongFactors})
    if (t.name == name && t.type == GgmlType::F32) {
      auto& factors = factors_[name];
      factors.resize(static_cast<size_t>(t.numel()));
      std::memcpy(factors.data(), data, factors.size() * sizeof(float));
      return;
    }
  const std::string name = hf_name(t.name, *family_);
  if (name.empty()) return unknown.push_back(t.name);
  const int64_t heads = heads_of(t.name);
  require(heads >= 0 && (heads == 0 || (t.shape[0] % heads == 0 && t.shape[0] / heads % 2 == 0)), Fault::Model,
          part.header.where, ": tensor '", t.name, "': ", t.shape[0], " rows are no ", heads, " heads of an even size");
  const size_t star = name.find('*');
  if (star == std::string::npos) {
    tensors_[name] = {t.type, t.shape, data, t.bytes, heads, shift_of(t.name, *family_)};
    return;
  }
  if (t.shape.size() != 3) return unknown.push_back(t.name);
  const int64_t each = t.shape[0] > 0 ? t.bytes / t.shape[0] : 0;
  require(t.shape[0] <= 65536, Fault::Model, part.header.where, ": tensor '", t.name, "': ", t.shape[0], " experts");
  for (int64_t e = 0; e < t.shape[0]; ++e)
    tensors_[name.substr(0, star) + std::to_string(e) + name.substr(star + 1)] = {
        t.type, {t.shape[1], t.shape[2]}, data + e * each, each, 0};
}

const GgufSlice* GgufModel::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<float> GgufModel::factors(const char* name) const {
  const auto it = factors_.find(name);
  return it == factors_.end() ? std::vector<float>() : it->second;
}

bool GgufModel::maps(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Part& part : parts_)
    if (at >= part.file->data() && at < part.file->data() + part.file->size()) return true;
  return false;
}

void GgufModel::forget(const std::string& name) const {
  const GgufSlice* slice = find(name);
  for (const Part& part : parts_)
    if (const std::byte* begin = part.file->data();
        slice && slice->data >= begin && slice->data < begin + part.file->size())
      part.file->forget(slice->data - begin, slice->bytes);
}

int64_t GgufModel::bytes() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.file->size();
  return sum;
}

}  // namespace apus
