// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, from a HuggingFace checkpoint folder. Immutable once loaded: share it between threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus {

struct TokenizerParts;  // the stages read from tokenizer.json (tokenizer_parts.h)

// The files of which one makes a folder's tokenizer, the first that is there; and those that stand beside them.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",  "vocab.txt",   "vocab.json",
                                                  "qwen.tiktoken",   "hy.tiktoken", "tiktoken.model",
                                                  "tokenizer.model", "tekken.json"};
inline constexpr const char* kBesideTokenizer[] = {"merges.txt", "tokenizer_config.json", "special_tokens_map.json",
                                                   "added_tokens.json", "chat_template.jinja"};
bool has_tokenizer(const std::filesystem::path& folder);

class Tokenizer {
 public:
  // `path`: a folder with one of kTokenizerFiles (tokenizer_config.json beside it is read for special tokens and
  // flags); or a tokenizer.json file itself.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);
  // The texts themselves. `config` is that of tokenizer_config.json, or empty;
  // `name` is what errors call the first one.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view tokenizer, std::string_view config = {},
                                                    const std::string& name = "tokenizer.json");
  // SentencePiece's or tiktoken's file, whose name is `name`.
  static std::shared_ptr<const Tokenizer> from_file(std::string_view bytes, const std::string& name,
                                                    std::string_view config = {});

  // Bytes that are not UTF-8 are read as U+FFFD. `add_special` adds what the post-processor asks for (BOS, EOS).
  // `split_special`: the text of special tokens is plain text (for text that users wrote).
  std::vector<int32_t> encode(std::string_view text, bool add_special = false, bool split_special = false) const;

  // What the post-processor puts around a text, or around and between two (Fault::Model where it knows no pairs).
  struct Marks {
    std::vector<int32_t> before, between, after;
    bool apart = false;  // the model is told which tokens are the second text's
  };
  const Marks& marks(bool pair) const;

  // A token and the bytes of the input that it stands for. Tokens of one character that was cut cover all of that
  // character; tokens of the post-processor cover nothing ({n, n}).
  struct Piece {
    int32_t id;
    uint32_t begin, end;
  };
  std::vector<Piece> encode_offsets(std::string_view text, bool add_special = false, bool split_special = false) const;

  // Ids without a token give nothing. Spaces before punctuation are cleaned up when tokenizer_config.json asks for it
  // and tokens are no bytes; `clean_up` overrides that.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false, std::optional<bool> clean_up = {}) const;

  // As tokenizer.json spells it ("Ġthe", "▁the"); "" for an id without a token.
  std::string piece(int32_t id) const;
  std::string token_bytes(int32_t id) const;                // the bytes it stands for in the middle of a text (" the")
  std::optional<int32_t> id(std::string_view token) const;  // of a token as piece() spells it
  int32_t vocab_size() const;                               // largest id + 1
  bool has(int32_t id) const;                               // false for gaps in the vocabulary
  bool is_special(int32_t id) const;                        // left out by skip_special
  bool is_added(int32_t id) const;                          // cut out of the text before the model sees it

  // From tokenizer_config.json (special_tokens_map.json where that has none). Absent: nullopt and "".
  std::optional<int32_t> bos() const { return special_id("bos_token"); }
  std::optional<int32_t> eos() const { return special_id("eos_token"); }
  std::optional<int32_t> pad() const { return special_id("pad_token"); }
  std::optional<int32_t> unk() const { return special_id("unk_token"); }
  // "bos_token" -> "<s>" and so on: what chat templates know as variables.
  const std::map<std::string, std::string>& special_tokens() const;
  std::string special_token(const std::string& name) const;  // "" when absent
  std::optional<int32_t> special_id(const std::string& name) const;
  const std::vector<std::string>& additional_special_tokens() const;
  int64_t model_max_length() const;  // 0: not stated

  // The pre-tokenizer's pieces of (normalised) text, for inspection and tests.
  std::vector<std::string> pre_tokenize(std::string_view text) const;
  std::string normalize(std::string_view text) const;

  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

 private:
  friend class StreamDecoder;
  std::unique_ptr<TokenizerParts> parts_;
};

// Decodes token by token and shows whole characters only: what push() returns is final. The chunks and the flush
// together are decode() of all ids (without clean-up of spaces, which looks back).
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  std::string push(int32_t id);
  std::string flush();  // what is still held back; the decoder is then as new

 private:
  std::string push_bytes(int32_t id);
  std::string push_window(int32_t id);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string held_;             // byte-level: the bytes of an unfinished character
  std::vector<int32_t> window_;  // otherwise: the last tokens, of which...
  size_t shown_ = 0;             // ...this many have been shown
};

}  // namespace apus
