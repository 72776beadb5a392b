// SPDX-License-Identifier: Apache-2.0
// The models of tokenizer.json: how a piece of text becomes ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_json.h"
#include "text/token_text.h"

namespace apus {

// Ids, and where asked for the bytes of the piece that each one stands for, counted from `base`.
struct TokenSink {
  std::vector<int32_t>& ids;
  std::vector<Span>* spans = nullptr;
  uint32_t base = 0;
  void add(int32_t id, size_t begin, size_t end) {
    ids.push_back(id);
    if (spans) spans->push_back({base + static_cast<uint32_t>(begin), base + static_cast<uint32_t>(end)});
  }
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void encode(std::string_view piece, TokenSink& out) const = 0;
  virtual int32_t size() const = 0;  // largest id + 1
  virtual bool has(int32_t id) const = 0;
  // Of an id that it has: raw bytes if the model works on bytes, else as tokenizer.json spells it.
  virtual std::string_view raw(int32_t id) const = 0;
  virtual bool works_on_bytes() const { return false; }
  virtual std::string piece(int32_t id) const = 0;  // as tokenizer.json spells it
  virtual std::optional<int32_t> id(std::string_view piece) const = 0;
};

// Raw texts of the members of tokenizer.json's "model", by key.
class ModelSource {
 public:
  ModelSource(std::string_view text, const std::string& name);
  ModelSource(std::string name, std::vector<std::pair<std::string, std::string_view>> members)
      : name_(std::move(name)), members_(std::move(members)) {}
  const std::string& name() const { return name_; }
  bool has(const std::string& key) const { return find(key).has_value(); }
  std::optional<std::string_view> find(const std::string& key) const;  // absent and null alike: nullopt
  JsonCursor cursor(const std::string& key) const;                     // refuses an absent one
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::optional<int64_t> integer(const std::string& key) const;
  std::string where(const std::string& key) const { return name_ + ": model." + key; }
  [[noreturn]] void error(const std::string& key, std::string_view why) const;

 private:
  std::string name_;
  std::vector<std::pair<std::string, std::string_view>> members_;
};

constexpr int32_t kMaxId = (1 << 21) - 2;  // ids are packed into 21 bits

// `bytes`: the vocabulary is spelt in the byte alphabet and the pieces will be raw bytes (BPE only).
std::unique_ptr<const TokenModel> make_bpe(const ModelSource& source, bool bytes);
std::unique_ptr<const TokenModel> make_unigram(const ModelSource& source);
std::unique_ptr<const TokenModel> make_word_piece(const ModelSource& source);
std::unique_ptr<const TokenModel> make_word_level(const ModelSource& source);
std::string model_type(const ModelSource& source);

}  // namespace apus
