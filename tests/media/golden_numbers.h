// SPDX-License-Identifier: Apache-2.0
// Numbers of the original processors, read without the tensor library: tests/data/media, or the whole of them where
// APUS_GOLDEN names their folder.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "media/image.h"
#include "tensor/safetensors_header.h"
#include "tests/paths.h"

namespace apus::test {

constexpr double kPixels = 2e-6;  // three roundings of single precision

class ProcessorNumbers {
 public:
  ProcessorNumbers() {
    const char* all = std::getenv("APUS_GOLDEN");
    dir_ = all && *all ? std::filesystem::path(all) / "models/processors" : source_dir() / "tests/data/media";
    read("golden");
  }
  // Of a file that lies in tests/data/media alone.
  explicit ProcessorNumbers(const std::string& name) : dir_(source_dir() / "tests/data/media") { read(name); }
  bool has(const std::string& name) const { return header_.tensors.count(name) > 0; }
  std::vector<int64_t> shape(const std::string& name) const { return header_.tensors.at(name).shape; }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const TensorEntry& e = header_.tensors.at(name);
    std::vector<T> out(static_cast<size_t>(e.end - e.begin) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + e.begin, out.size() * sizeof(T));
    return out;
  }
  // [height, width, colours]: grey and alpha as convert("RGB") treats them.
  Image image(const std::string& name) const {
    const auto s = shape(name);
    const auto bytes = values<uint8_t>(name);
    const auto parts = static_cast<size_t>(s.size() == 3 ? s[2] : 1);
    Image out{s[1], s[0], {}};
    for (size_t i = 0; i < bytes.size(); i += parts)
      for (size_t c = 0; c < 3; ++c) out.rgb.push_back(bytes[i + (parts == 1 ? 0 : c)]);
    return out;
  }
  Json preprocessor(const std::string& name) const {
    return parse_json(read_file(dir_ / ("preprocessor_config." + name + ".json")), name);
  }
  // The file may hold the first rows alone.
  void expect_near(const std::string& name, const std::vector<float>& got, double allowed) const {
    const auto wanted = values<float>(name);
    ASSERT_LE(wanted.size(), got.size()) << name;
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(wanted[i]) - static_cast<double>(got[i])));
    EXPECT_LE(worst, allowed) << name;
  }
  Json json;

 private:
  void read(const std::string& name) {
    json = parse_json(read_file(dir_ / (name + ".json")), name);
    bytes_ = read_file(dir_ / (name + ".safetensors"));
    header_ = parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes_.data()),
                                       static_cast<int64_t>(bytes_.size()), name);
  }
  std::filesystem::path dir_;
  std::string bytes_;
  SafetensorsHeader header_;
};

}  // namespace apus::test
