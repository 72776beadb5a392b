// SPDX-License-Identifier: Apache-2.0
#include "quant/format.h"

#include <algorithm>

namespace apus::quant {

namespace {
void add_new(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

template <class Wanted>
std::vector<std::string> made_methods(const Wanted& wanted) {
  std::vector<std::string> out;
  for (const auto& [name, format] : Registry<Format>::of().all())
    if (wanted(format.made)) add_new(out, format.made.method);
  return out;
}

// "2, 3 or 4"
std::string either(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size(); ++i)
    out += (i == 0 ? "" : i + 1 == numbers.size() ? " or " : ", ") + std::to_string(numbers[i]);
  return out;
}
}  // namespace

std::vector<std::string> loaded_methods() {
  return made_methods([](const Making&) { return true; });
}

std::vector<std::string> exported_methods() {
  return made_methods([](const Making& making) { return making.exported; });
}

std::vector<std::string> calibrated_methods() {
  std::vector<std::string> out;
  for (const auto& [name, format] : Registry<Format>::of().all())
    for (const std::string& method : format.calibrated.methods) add_new(out, method);
  return out;
}

std::vector<int64_t> bits_of_method(const std::string& method) {
  if (const CalibratedMaking* const calibrated = calibrated_making(method)) return calibrated->bits;
  std::vector<int64_t> out;
  for (const auto& [name, format] : Registry<Format>::of().all())
    if (format.made.method == method) out.insert(out.end(), format.made.bits.begin(), format.made.bits.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::string bits_text(const std::vector<std::string>& methods) {
  std::string out;
  for (const std::string& method : methods)
    out += str(out.empty() ? "" : ", ", either(bits_of_method(method)), " (", method, ")");
  return out;
}

const CalibratedMaking* calibrated_making(const std::string& method) {
  for (const auto& [name, format] : Registry<Format>::of().all()) {
    const auto& methods = format.calibrated.methods;
    if (std::find(methods.begin(), methods.end(), method) != methods.end()) return &format.calibrated;
  }
  return nullptr;
}

double bits_in_groups(int64_t bits, int64_t group, bool zeros) {
  // Codes of four and eight bits are kept with scales and zeros of 16 bits; the others as they are in files, in f32.
  const double number = bits == 4 || bits == 8 ? 16 : 32;
  return static_cast<double>(bits) + (group > 0 ? number * (zeros ? 2 : 1) / static_cast<double>(group) : 0);
}

}  // namespace apus::quant
