// SPDX-License-Identifier: Apache-2.0
// GGUF, llama.cpp's file format: settings by key, and tensors. Read by mapping, written a tensor at a time.
// No tensor library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/files.h"
#include "gguf/ggml_type.h"

namespace apus {

// What kinds of values settings have, as files number them.
enum class GgufKind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

class GgufValue {
 public:
  using Strings = std::vector<std::string>;
  using Integers = std::vector<int64_t>;
  using Numbers = std::vector<double>;
  using Held = std::variant<bool, int64_t, double, std::string, Strings, Integers, Numbers>;

  GgufValue() = default;
  GgufValue(GgufKind kind, Held held) : kind(kind), held(std::move(held)) {}
  static GgufValue u32(int64_t value) { return {GgufKind::U32, value}; }
  static GgufValue f32(double value) { return {GgufKind::F32, value}; }
  static GgufValue flag(bool value) { return {GgufKind::Bool, value}; }
  static GgufValue text(std::string value) { return {GgufKind::String, std::move(value)}; }
  static GgufValue list(GgufKind element, Held values);

  GgufKind kind = GgufKind::U32;     // Array: of `element`
  GgufKind element = GgufKind::U32;  // of an array
  Held held = int64_t{0};            // whole numbers of every kind are int64, fractions double
};

struct GgufTensor {
  std::string name;
  GgmlType type;
  std::vector<int64_t> shape;    // slowest first, as HuggingFace has it; files say it the other way round
  int64_t begin = 0, bytes = 0;  // from the start of the file

  int64_t numel() const;
};

struct GgufHeader {
  std::map<std::string, GgufValue> settings;
  std::vector<GgufTensor> tensors;  // in the file's order

  const GgufValue* find(const std::string& key) const;
  // Of that kind, or the fallback where there is none. Fault::Model where it is of another kind.
  std::string text(const std::string& key, const std::string& fallback = "") const;
  std::optional<int64_t> integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> flag(const std::string& key) const;
  const GgufValue::Strings* strings(const std::string& key) const;  // null: none
  const GgufValue::Integers* integers(const std::string& key) const;
  const GgufValue::Numbers* numbers(const std::string& key) const;
  // The numbers of a tensor that says what periods are multiplied by; empty: there is none.
  const std::vector<float>& factors(const std::string& tensor) const;
  std::map<std::string, std::vector<float>> factors_of;
  std::string where;  // the file, for messages
};

// Checks everything: lengths, kinds, names, shapes, places. `where` names the file in messages.
GgufHeader parse_gguf(const std::byte* data, int64_t size, const std::string& where);

// What a file will be, in order.
struct GgufPlan {
  std::vector<std::pair<std::string, GgufValue>> settings;
  struct Tensor {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
  };
  std::vector<Tensor> tensors;
  int64_t bytes() const;  // of the tensors
};

// Tensors come in the planned order, each in any number of parts; memory holds a part. Visible only after commit().
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, GgufPlan plan);
  void add(const std::byte* data, int64_t bytes);  // the next bytes of the tensor that is written
  void commit();                                   // Fault::Bug when something is missing

 private:
  AtomicFile file_;
  GgufPlan plan_;
  size_t tensor_ = 0;  // which is written, and how much of it is there
  int64_t done_ = 0;
};

}  // namespace apus
