// SPDX-License-Identifier: Apache-2.0
// PyTorch's own files (tests/data/torch, by torch.save) against the same tensors in safetensors.
#include "tensor/torch_file.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tensor/safetensors.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

fs::path data(const char* name) { return test::source_dir() / "tests/data/torch" / name; }

TEST(TorchFile, HoldsWhatSafetensorsHold) {
  const auto theirs = SafetensorsFile::open(data("all.bin")), ours = SafetensorsFile::open(data("all.safetensors"));
  ASSERT_EQ(theirs->entries().size(), ours->entries().size());
  for (const auto& [name, entry] : ours->entries()) {
    ASSERT_TRUE(theirs->entries().count(name)) << name;
    EXPECT_EQ(theirs->entries().at(name).shape, entry.shape) << name;
    EXPECT_TRUE(at::equal(theirs->tensor(name), ours->tensor(name))) << name;
  }
}

TEST(TorchFile, OfADictOfDictsHoldsBothNamesAndWholeNumbers) {
  const auto voices =
      SafetensorsFile::open(test::source_dir() / "tests/data/speech/qwen2_5_omni/checkpoint/spk_dict.pt");
  EXPECT_EQ(voices->entries().size(), 4u);
  EXPECT_EQ(voices->entries().at("Ethan.ref_mel").shape, (std::vector<int64_t>{1, 13, 10}));
  EXPECT_EQ(voices->metadata().at("Ethan.bos_token"), "371");
}

TEST(TorchFile, WhatIsNoStateDictIsRefused) {
  const auto refused = [](const char* name) {
    return test::refusal(Fault::Model, [&] { SafetensorsFile::open(data(name)); });
  };
  test::expect_says(refused("transposed.bin"), "tensor 'turned'");
  test::expect_says(refused("runs_code.bin"), "would call 'posix system'");
}

TEST(TorchFile, WhatIsDamagedIsRefused) {
  std::ifstream in(data("all.bin"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t keep = 4; keep < bytes.size(); keep += 97) {
    const std::string part = bytes.substr(0, keep);
    const auto* begin = reinterpret_cast<const std::byte*>(part.data());
    EXPECT_THROW(parse_torch_file(begin, static_cast<int64_t>(part.size()), "part"), Error) << keep;
  }
}

TEST(TorchFile, AFolderOfShards) {
  const test::Folder folder;
  fs::copy_file(data("all.bin"), folder.path / "pytorch_model-00001-of-00001.bin");
  std::ofstream(folder.path / "pytorch_model.bin.index.json")
      << R"({"weight_map": {"whole": "pytorch_model-00001-of-00001.bin", "part": "pytorch_model-00001-of-00001.bin"}})";
  const TensorFolder tensors(folder.path, "model");
  EXPECT_EQ(tensors.names().size(), 2u);
  std::ofstream(folder.path / "pytorch_model.bin") << "old";
  test::expect_says(test::refusal(Fault::Model, [&] { TensorFolder(folder.path, "model"); }), "torch.load");
}

}  // namespace
}  // namespace apus
