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
  explicit MediaSettings(std::map<std::string, int64_t> values) : values_(std::move(values)) {}
  std::optional<int64_t> get(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t get(const std::string& name, int64_t otherwise) const { return get(name).value_or(otherwise); }
  const std::map<std::string, int64_t>& all() const { return values_; }

 private:
  std::map<std::string, int64_t> values_;
};

struct MediaOptions {
  std::optional<int64_t> max_pixels;  // pictures with more are made smaller before anything else
  Json model_kwargs;                  // settings by name, in any case: {"max_pixels": 602112}
  bool given() const { return max_pixels || (model_kwargs.is_object() && !model_kwargs.empty()); }

  void fields(OptionTable& v);
  void check() const;              // Fault::Usage for a setting that is not known
  MediaSettings settings() const;  // Fault::Usage for one that is no number
};

}  // namespace apus
