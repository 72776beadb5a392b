// SPDX-License-Identifier: Apache-2.0
// Incremental decoding: characters are shown when they are whole.

#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace apus {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr size_t kLongestByteRun = 256;  // further back a run of byte tokens is not looked at
}  // namespace

std::string StreamDecoder::push(int32_t id) {
  if (!tokenizer_->has(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
  return tokenizer_->parts_->byte_decoder ? push_bytes(id) : push_window(id);
}

std::string StreamDecoder::push_bytes(int32_t id) {
  held_ += tokenizer_->token_bytes(id);
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    bool cut = false;
    const int n = unicode::sequence(std::string_view(held_).substr(at), &cut);
    if (cut) break;
    if (n > 0)
      out.append(held_, at, static_cast<size_t>(n));
    else
      out += kReplacement;
    at += static_cast<size_t>(std::abs(n));
  }
  held_.erase(0, at);
  return out;
}

std::string StreamDecoder::push_window(int32_t id) {
  window_.push_back(id);
  const std::span<const int32_t> all(window_);
  const std::string before = tokenizer_->decode(all.first(shown_), false, false),
                    now = tokenizer_->decode(all, false, false);
  if (now.ends_with(kReplacement) || now.size() <= before.size()) return {};
  // What was new becomes the context of what comes; a run of byte tokens is kept from its start.
  const auto byte = [&](size_t i) { return byte_of(tokenizer_->piece(window_[i])); };
  size_t first = shown_;
  while (first > 0 && window_.size() - first < kLongestByteRun && byte(first) >= 0 && byte(first - 1) >= 0) --first;
  if (window_.size() - first >= kLongestByteRun)  // what is left of the run begins with a whole character
    while (first < shown_ && (byte(first) & 0xC0) == 0x80) ++first;
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(first));
  shown_ = window_.size();
  return now.substr(before.size());
}

std::string StreamDecoder::flush() {
  std::string out = held_.empty() ? std::string() : std::string(kReplacement);
  if (shown_ < window_.size()) {
    const std::span<const int32_t> all(window_);
    const std::string before = tokenizer_->decode(all.first(shown_), false, false),
                      now = tokenizer_->decode(all, false, false);
    if (now.size() > before.size()) out += now.substr(before.size());
  }
  held_.clear();
  window_.clear();
  shown_ = 0;
  return out;
}

}  // namespace apus
