// SPDX-License-Identifier: Apache-2.0
// How large media may become: flags, and the variables that Qwen's and InternVL's tools read from the environment.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

class OptionTable;

// MAX_PIXELS, IMAGE_MAX_TOKEN_NUM and their kin, from the environment or --model_kwargs, which comes first.
class MediaSettings {
 public:
  MediaSettings() = default;
  explicit MediaSettings(std::map<std::string, double> values) : values_(std::move(values)) {}
  std::optional<double> number(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<int64_t> get(const std::string& name) const {
    const auto found = number(name);
    return found ? std::optional(static_cast<int64_t>(*found)) : std::nullopt;
  }
  int64_t get(const std::string& name, int64_t otherwise) const { return get(name).value_or(otherwise); }
  Json all() const;

 private:
  std::map<std::string, double> values_;
};

constexpr int64_t kMediaCacheMb = 512;  // unless --media_cache_mb says otherwise

struct MediaOptions {
  std::optional<int64_t> max_pixels;  // pictures with more are made smaller before anything else
  Json model_kwargs;                  // settings by name, in any case: {"max_pixels": 602112}
  std::optional<int64_t> media_cache_mb;
  bool given() const { return max_pixels || media_cache_mb || (model_kwargs.is_object() && !model_kwargs.empty()); }

  void fields(OptionTable& v);
  void check() const;              // Fault::Usage for a setting that is not known
  MediaSettings settings() const;  // Fault::Usage for one that is no number
  // Of what was made of media and is kept, in the host's memory.
  int64_t cache_bytes() const { return media_cache_mb.value_or(kMediaCacheMb) << 20; }
};

}  // namespace apus
