// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "gguf/gguf_file.h"

namespace apus {

namespace {

constexpr int64_t kAlignment = 32;

int64_t aligned(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

void put_integer(std::string& out, GgufKind kind, int64_t value) {
  switch (kind) {
    case GgufKind::Bool:
    case GgufKind::U8:
    case GgufKind::I8:
      return put(out, static_cast<int8_t>(value));
    case GgufKind::U16:
    case GgufKind::I16:
      return put(out, static_cast<int16_t>(value));
    case GgufKind::U64:
    case GgufKind::I64:
      return put(out, value);
    default:
      return put(out, static_cast<int32_t>(value));
  }
}

void put_fraction(std::string& out, GgufKind kind, double value) {
  if (kind == GgufKind::F32) return put(out, static_cast<float>(value));
  put(out, value);
}

struct PutValue {
  std::string& out;
  const GgufValue& value;
  void operator()(bool flag) const { put(out, static_cast<uint8_t>(flag)); }
  void operator()(int64_t number) const { put_integer(out, value.kind, number); }
  void operator()(double number) const { put_fraction(out, value.kind, number); }
  void operator()(const std::string& text) const { put_text(out, text); }
  template <class T>
  void operator()(const std::vector<T>& list) const {
    put(out, static_cast<uint32_t>(value.element));
    put<uint64_t>(out, list.size());
    for (const T& each : list) {
      if constexpr (std::is_same_v<T, std::string>)
        put_text(out, each);
      else if constexpr (std::is_same_v<T, double>)
        put_fraction(out, value.element, each);
      else
        put_integer(out, value.element, each);
    }
  }
};

int64_t bytes_of(const GgufPlan::Tensor& t) {
  int64_t n = 1;
  for (const int64_t d : t.shape) n *= d;
  return ggml_bytes(ggml_form(t.type), n);
}

std::string header_of(const GgufPlan& plan) {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, plan.tensors.size());
  put<uint64_t>(out, plan.settings.size());
  for (const auto& [key, value] : plan.settings) {
    put_text(out, key);
    put(out, static_cast<uint32_t>(value.kind));
    std::visit(PutValue{out, value}, value.held);
  }
  int64_t offset = 0;
  for (const GgufPlan::Tensor& t : plan.tensors) {
    put_text(out, t.name);
    put(out, static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) put(out, static_cast<uint64_t>(t.shape[i]));
    put(out, static_cast<uint32_t>(t.type));
    put(out, static_cast<uint64_t>(offset));
    offset += aligned(bytes_of(t));
  }
  out.resize(static_cast<size_t>(aligned(static_cast<int64_t>(out.size()))), '\0');
  return out;
}

}  // namespace

int64_t GgufPlan::bytes() const {
  int64_t sum = 0;
  for (const Tensor& t : tensors) sum += aligned(bytes_of(t));
  return sum;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, GgufPlan plan) : file_(path), plan_(std::move(plan)) {
  file_.write(header_of(plan_));
}

void GgufWriter::add(const std::byte* data, int64_t bytes) {
  require(tensor_ < plan_.tensors.size(), Fault::Bug, "a GGUF file is given more tensors than were planned");
  const int64_t whole = bytes_of(plan_.tensors[tensor_]);
  require(bytes <= whole - done_, Fault::Bug, "tensor '", plan_.tensors[tensor_].name, "' is longer than was planned");
  file_.write(data, bytes);
  done_ += bytes;
  if (done_ < whole) return;
  static constexpr char kZeros[kAlignment] = {};
  file_.write(kZeros, aligned(whole) - whole);
  ++tensor_, done_ = 0;
}

void GgufWriter::commit() {
  require(tensor_ == plan_.tensors.size(), Fault::Bug, "a GGUF file lacks ", plan_.tensors.size() - tensor_,
          " of its tensors");
  file_.commit();
}

}  // namespace apus
