// SPDX-License-Identifier: Apache-2.0
#include "quant/scheme.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "quant/format.h"

namespace apus::quant {

namespace {
std::string formats_read() {
  std::vector<std::string> out;
  for (const auto& [name, format] : Registry<Format>::of().all()) out.push_back(format.read);
  return join(out);
}

std::set<std::string> names_of(std::vector<std::string> Format::*names) {
  std::set<std::string> out;
  for (const auto& [name, format] : Registry<Format>::of().all())
    out.insert((format.*names).begin(), (format.*names).end());
  return out;
}
}  // namespace

std::optional<Scheme> scheme_of(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return std::nullopt;
  require(found->is_object(), Fault::Model, "config.json: quantization_config must be an object");
  Scheme s{setting<std::string>(*found, "quant_method", "bitsandbytes"), *found};
  // gpt-oss's experts, which are made plain while they are loaded (checkpoint/mxfp4.h).
  if (s.method == "mxfp4") return std::nullopt;
  bool known = false;
  for (const auto& [name, format] : Registry<Format>::of().all()) {
    if (std::find(format.methods.begin(), format.methods.end(), s.method) == format.methods.end()) continue;
    format.check(s.said);
    known = true;
  }
  require(known, Fault::Model, "config.json: the checkpoint is quantised by '", s.method,
          "', which is not read; read are ", formats_read());
  return s;
}

bool marks_quantised(const std::string& piece) {
  static const std::set<std::string> marks = names_of(&Format::marks);
  return std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
    return mark.ends_with('.') ? piece.starts_with(mark) : piece == mark;
  });
}

bool belongs_to_weight(const std::string& piece) {
  static const std::set<std::string> others = names_of(&Format::others);
  return piece == "weight" || others.count(piece) > 0 || marks_quantised(piece);
}

std::unique_ptr<Matrix> open_weight(const Scheme& scheme, const StoredLayer& layer, Shape shape) {
  for (const auto& [name, format] : Registry<Format>::of().all())
    if (format.holds(layer.pieces, scheme.said)) return format.open(layer, shape, scheme.said);
  return nullptr;
}

}  // namespace apus::quant
