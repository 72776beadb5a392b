// SPDX-License-Identifier: Apache-2.0
// Golden model data for tests: tiny checkpoints and the numbers the original implementations compute with them. They
// stand in tests/data/models; APUS_GOLDEN may name a folder whose models/ holds more.
#pragma once

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "tensor/safetensors.h"
#include "tests/paths.h"

namespace apus::golden {

inline std::filesystem::path models() { return test::source_dir() / "tests/data/models"; }

// Where the tests compute: APUS_TEST_DEVICE, default cpu.
inline std::string device_named() {
  const char* wanted = std::getenv("APUS_TEST_DEVICE");
  return wanted && *wanted ? wanted : "cpu";
}
inline c10::Device device() { return open_device(device_named()).device; }

// One model's folder: numbers, tensors, checkpoint.
struct Case {
  explicit Case(const std::string& name)
      : dir(models() / name),
        json(Json::parse(read_file(dir / "golden.json"))),
        file(SafetensorsFile::open(dir / "golden.safetensors")) {}
  at::Tensor tensor(const std::string& name) const { return file->tensor(name); }
  bool has(const std::string& name) const { return file->entries().count(name) > 0; }
  std::filesystem::path dir;
  Json json;
  std::shared_ptr<SafetensorsFile> file;
};

inline double max_abs(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU, at::kFloat) - b.to(at::kCPU, at::kFloat)).abs().max().item<double>();
}

}  // namespace apus::golden
