// SPDX-License-Identifier: Apache-2.0
// The precompiled_charsmap of SentencePiece models: a double-array trie of texts and their replacements.
#include <cstring>

#include "base/base64.h"
#include "base/error.h"
#include "text/normalizer.h"

namespace apus {
namespace {

std::string bytes_of(const JsonPart& part, const char* key) {
  try {
    return from_base64(part.text(key));
  } catch (const Error&) {
    part.error(key, "not base64");
  }
}

class Charsmap final : public Normalizer {
 public:
  explicit Charsmap(const JsonPart& part) : longest_(part.flag("longest", false)) {
    constexpr const char* kKey = "precompiled_charsmap";
    const std::string blob = bytes_of(part, kKey);
    uint32_t size = 0;
    if (blob.size() < 4) part.error(kKey, "too short");
    std::memcpy(&size, blob.data(), 4);
    if (size % 4 != 0 || size > blob.size() - 4) part.error(kKey, "the size of its trie does not fit");
    units_.resize(size / 4);
    std::memcpy(units_.data(), blob.data() + 4, size);
    texts_ = blob.substr(4 + size);
    if (unicode::valid_prefix(texts_) != texts_.size()) part.error(kKey, "its texts are not UTF-8");
  }

  // As tokenizer.json means it: grapheme clusters that the map knows are replaced; of others, the characters that it
  // knows. As SentencePiece means it ("longest"): at each place the longest entry.
  void apply(TokenText& text) const override {
    TokenEdit edit(text);
    const std::string_view all = text.text;
    for (size_t i = 0; longest_ && i < all.size();) {
      size_t n = static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(all[i])));
      if (const char* whole = find(all.substr(i), &n))
        edit.put(whole, i, i + n);
      else
        edit.keep(i, i + n);
      i += n;
    }
    if (longest_) return void(text = edit.take());
    size_t begin = 0;
    for (const size_t end : unicode::grapheme_ends(all)) {
      const char* whole = end - begin < 6 ? find(all.substr(begin, end - begin)) : nullptr;
      if (whole) edit.put(whole, begin, end);
      for (size_t i = begin; !whole && i < end;) {
        const size_t n = static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(all[i])));
        if (const char* one = find(all.substr(i, n)))
          edit.put(one, i, i + n);
        else
          edit.keep(i, i + n);
        i += n;
      }
      begin = end;
    }
    text = edit.take();
  }

 private:
  // The replacement for the shortest entry that `key` begins with, as the library that defined this does; or for the
  // longest one, whose length is then put at `length`.
  const char* find(std::string_view key, size_t* length = nullptr) const {
    const auto unit = [&](uint32_t at) { return at < units_.size() ? units_[at] : 0; };
    const auto offset = [](uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); };
    uint32_t at = offset(unit(0));
    const char* found = nullptr;
    for (size_t i = 0; i < key.size(); ++i) {
      const auto byte = static_cast<unsigned char>(key[i]);
      if (byte == 0) return found;
      at ^= byte;
      const uint32_t u = unit(at);
      if ((u & (1u << 31 | 0xFF)) != byte) return found;
      at ^= offset(u);
      if ((u >> 8 & 1) == 0) continue;
      const uint32_t value = unit(at) & 0x7FFFFFFF;
      if (value >= texts_.size()) return found;
      found = texts_.c_str() + value;
      if (!length) return found;
      *length = i + 1;
    }
    return found;
  }

  bool longest_;
  std::vector<uint32_t> units_;
  std::string texts_;  // replacements, each ended by a zero byte
};

}  // namespace

std::unique_ptr<const Normalizer> make_charsmap(const JsonPart& part) { return std::make_unique<Charsmap>(part); }

}  // namespace apus
