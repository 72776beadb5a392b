// SPDX-License-Identifier: Apache-2.0
// An adapter with large factors: whoever answers with it says something else.
#pragma once

#include <filesystem>

#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"

namespace apus::test {

inline void save_loud_adapter(const std::filesystem::path& base, const std::filesystem::path& dir) {
  const auto model = load_model(base, {});
  LoraConfig config;
  config.target_modules = {"q_proj", "down_proj"};
  config.base_model = base.string();
  const Adapter adapter = make_adapter(*model, config, 7);
  model->visit([](const std::string& name, Param& p) {
    if (name.ends_with("lora_B.weight")) p.data.fill_(0.5);
  });
  std::filesystem::create_directories(dir);
  save_adapter(*model, adapter, dir, {});
}

}  // namespace apus::test
