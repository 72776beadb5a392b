// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tensor/gguf_tensor.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// f8 e4m3 (no infinities, NaN 0x7f) and e5m2 (IEEE-like) widened to bf16, which holds every value exactly.
c10::BFloat16 widen_f8(uint8_t bits, int mantissa_bits, int bias, bool ieee) {
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const int top = (0x7f >> mantissa_bits);
  float value;
  if (ieee && exponent == top)
    value = mantissa ? NAN : INFINITY;
  else if (!ieee && (bits & 0x7f) == 0x7f)
    value = NAN;
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  else
    value = std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
  return bits & 0x80 ? -value : value;
}

at::Tensor widened(const std::byte* data, const TensorEntry& entry) {
  const bool e5m2 = entry.type == DiskType::F8E5M2;
  c10::BFloat16 table[256];
  for (int i = 0; i < 256; ++i) table[i] = widen_f8(static_cast<uint8_t>(i), e5m2 ? 2 : 3, e5m2 ? 15 : 7, e5m2);
  at::Tensor out = at::empty(entry.shape, at::TensorOptions().dtype(at::kBFloat16));
  auto* p = out.data_ptr<at::BFloat16>();
  for (int64_t i = 0; i < out.numel(); ++i) p[i] = table[static_cast<uint8_t>(data[i])];
  return out;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : file_(path), header_(parse_weights_header(file_.data(), file_.size(), path.string())) {}

std::shared_ptr<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  return std::shared_ptr<SafetensorsFile>(new SafetensorsFile(path));
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto it = header_.tensors.find(name);
  require(it != header_.tensors.end(), Fault::Model, path().string(), " holds no tensor '", name, "'");
  const TensorEntry& entry = it->second;
  const std::byte* data = file_.data() + entry.begin;
  if (entry.type == DiskType::F8E4M3 || entry.type == DiskType::F8E5M2) return widened(data, entry);
  const auto options = at::TensorOptions().dtype(torch_type(entry.type));
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  // at::Tensor knows no const; nobody writes to loaded weights in place.
  void* writable = const_cast<std::byte*>(data);
  const bool aligned = std::bit_cast<uintptr_t>(data) % static_cast<uintptr_t>(disk_size(entry.type)) == 0;
  if (!aligned) {
    at::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.data_ptr(), data, static_cast<size_t>(entry.end - entry.begin));
    return copy;
  }
  return at::from_blob(
      writable, entry.shape, [keep = shared_from_this()](void*) {}, options);
}

bool SafetensorsFile::maps(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= file_.data() && at < file_.data() + file_.size();
}

void SafetensorsFile::forget(const std::string& name) const {
  if (const auto it = header_.tensors.find(name); it != header_.tensors.end())
    file_.forget(it->second.begin, it->second.end - it->second.begin);
}

TensorFolder::TensorFolder(const fs::path& dir, const std::string& stem) {
  if (stem == "model" && (gguf_ = GgufModel::in_folder(dir))) {
    for (const auto& [name, slice] : gguf_->tensors())
      of_gguf_[name] = {gguf_disk_type(slice), slice.shape, 0, slice.bytes()};
    return;
  }
  for (const auto& [path, promised] : weight_files(dir, stem)) {
    const auto file = SafetensorsFile::open(path);
    for (const auto& name : promised) {
      require(file->entries().count(name), Fault::Model, path.string(), ": the index promises tensor '", name,
              "' here, but it is not in the file");
      file_of_[name] = file;
    }
    if (!promised.empty()) continue;
    for (const auto& [name, entry] : file->entries()) file_of_[name] = file;
  }
}

const TensorEntry* TensorFolder::find(const std::string& name) const {
  if (gguf_) return of_gguf_.count(name) ? &of_gguf_.at(name) : nullptr;
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? nullptr : &it->second->entries().at(name);
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : of_gguf_) all.push_back(name);
  for (const auto& [name, file] : file_of_) all.push_back(name);
  return all;
}

at::Tensor TensorFolder::tensor(const std::string& name, at::ScalarType wide) const {
  if (gguf_ && gguf_->find(name)) return gguf_tensor(gguf_, *gguf_->find(name), wide);
  const auto it = file_of_.find(name);
  require(it != file_of_.end(), Fault::Model, "the checkpoint holds no tensor '", name, "'");
  return it->second->tensor(name);
}

bool TensorFolder::maps(const at::Tensor& tensor) const {
  const void* at = tensor.data_ptr();
  return (gguf_ && gguf_->maps(at)) ||
         std::any_of(file_of_.begin(), file_of_.end(), [&](const auto& f) { return f.second->maps(at); });
}

void TensorFolder::forget(const std::string& name) const {
  if (gguf_) return gguf_->forget(name);
  if (const auto it = file_of_.find(name); it != file_of_.end()) it->second->forget(name);
}

int64_t TensorFolder::bytes() const {
  int64_t sum = gguf_ ? gguf_->bytes() : 0;
  for (const auto& [name, file] : file_of_) {
    const auto& entry = file->entries().at(name);
    sum += entry.end - entry.begin;
  }
  return sum;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const std::vector<Spec>& specs,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& spec : specs) {
    int64_t bytes = disk_size(disk_type_of(spec.type));
    for (const int64_t dim : spec.shape) bytes *= dim;
    require(header_.tensors.emplace(spec.name, TensorEntry{disk_type_of(spec.type), spec.shape, offset, offset + bytes})
                .second,
            Fault::Bug, "tensor '", spec.name, "' is to be written twice");
    header[spec.name] = {{"dtype", disk_name(disk_type_of(spec.type))},
                         {"shape", spec.shape},
                         {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begins on a cache line
  const uint64_t length = text.size();
  file_.write(&length, 8);
  file_.write(text);
  for (auto& [name, entry] : header_.tensors)
    entry.begin += 8 + static_cast<int64_t>(length), entry.end += 8 + static_cast<int64_t>(length);
}

void SafetensorsWriter::add(const std::string& name, const at::Tensor& tensor) {
  const auto it = header_.tensors.find(name);
  require(it != header_.tensors.end() && it->second.shape == tensor.sizes().vec() &&
              it->second.type == disk_type_of(tensor.scalar_type()),
          Fault::Bug, "tensor '", name, "' was not announced with this shape and type");
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  file_.write_at(it->second.begin, host.data_ptr(), it->second.end - it->second.begin);
  written_[name] = true;
}

void SafetensorsWriter::commit() {
  for (const auto& [name, entry] : header_.tensors)
    require(written_.count(name), Fault::Bug, "tensor '", name, "' was announced but not written");
  file_.commit();
}

void write_safetensors(const fs::path& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Spec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, specs, metadata);
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  writer.commit();
}

}  // namespace apus
