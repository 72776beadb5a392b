// SPDX-License-Identifier: Apache-2.0
// Phi-4-multimodal beyond what every family that sees is held to: long sounds, the same one with and without a picture,
// and the adapters that come with it.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>

#include <cmath>

#include "checkpoint/adapter.h"
#include "checkpoint/merge.h"
#include "tests/models/seeing_batch.h"

namespace apus {
namespace {

using golden::max_abs;

class Phi4Hearing : public ::testing::Test {
 protected:
  Phi4Hearing() : c("phi4_multimodal"), device(golden::device()) {
    loaded = load_model(c.dir / "checkpoint",
                        {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
    model = dynamic_cast<SeeingDecoder*>(loaded.get());
  }
  // A text's hidden states.
  at::Tensor read(const std::vector<int32_t>& ids, std::vector<std::shared_ptr<const MediaContent>> media) const {
    Step step = packed_step({static_cast<int32_t>(ids.size())}, device);
    step.position = at::Tensor();
    return model->forward(Inputs(golden::ids_tensor({ids.begin(), ids.end()}, device),
                                 {placed_media(ids, std::move(media), model->seeing())}),
                          step);
  }
  std::vector<int32_t> tokens(const MediaContent& content) const {
    return std::vector<int32_t>(static_cast<size_t>(tokens_for(content, model->seeing())),
                                static_cast<int32_t>(token_of(content.type, model->seeing())));
  }
  golden::Case c;
  c10::Device device;
  std::unique_ptr<Model> loaded;
  SeeingDecoder* model = nullptr;
  at::AutoGradMode no_grad{false};
};

// Of more rows than are looked at together.
TEST_F(Phi4Hearing, LongSounds) {
  constexpr int64_t kFrames = 4100, kBands = 10;
  MediaContent sound;
  sound.type = MediaType::Audio, sound.shape = {kBands, kFrames};
  for (int64_t b = 0; b < kBands; ++b)
    for (int64_t f = 0; f < kFrames; ++f)
      sound.values.push_back(static_cast<float>(std::sin(0.013 * static_cast<double>(f) + static_cast<double>(b))));
  const at::Tensor rows = model->see(sound).row_MD;
  ASSERT_EQ(rows.size(0), 513);
  EXPECT_LT(max_abs(at::index_select(rows, 0, c.tensor("long/rows").to(device)), c.tensor("long/audio_embeds")), 5e-5);
}

// A sound in a text with a picture goes through a projection of its own, wherever the picture stands.
TEST_F(Phi4Hearing, BesidePictures) {
  const auto media = golden::contents_of(c, "left", model->seeing());
  const auto picture = media.front(), sound = media.back();
  ASSERT_EQ(sound->type, MediaType::Audio);
  const std::vector<int32_t> heard = tokens(*sound), seen = tokens(*picture);
  std::vector<int32_t> first = {5, 6};
  first.insert(first.end(), heard.begin(), heard.end());
  std::vector<int32_t> with = first;
  with.insert(with.end(), seen.begin(), seen.end());
  const at::Tensor alone_TD = read(first, {sound}), beside_TD = read(with, {picture, sound});
  const auto same = static_cast<int64_t>(first.size());
  EXPECT_LT(max_abs(alone_TD.narrow(0, 0, 2), beside_TD.narrow(0, 0, 2)), 1e-5);
  EXPECT_GT(max_abs(alone_TD.narrow(0, 2, same - 2), beside_TD.narrow(0, 2, same - 2)), 1e-2);
  // Both kinds in one step are what each is by itself.
  std::vector<int64_t> all(first.begin(), first.end());
  all.insert(all.end(), with.begin(), with.end());
  Step step = packed_step({static_cast<int32_t>(first.size()), static_cast<int32_t>(with.size())}, device);
  step.position = at::Tensor();
  const Inputs together(golden::ids_tensor(all, device), {placed_media(first, {sound}, model->seeing()),
                                                          placed_media(with, {picture, sound}, model->seeing())});
  const at::Tensor packed_TD = model->forward(together, step);
  EXPECT_LT(max_abs(packed_TD.narrow(0, 0, same), alone_TD), 2e-5);
  EXPECT_LT(max_abs(packed_TD.narrow(0, same, beside_TD.size(0)), beside_TD), 2e-5);
}

std::unique_ptr<Model> owned(const std::filesystem::path& dir) {
  return load_model(dir,
                    {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
}

at::Tensor states_of(const golden::Case& c, const Model& model) {
  const auto& seeing = dynamic_cast<const SeeingDecoder&>(model).seeing();
  const golden::Packed p = golden::unpad(c, "left");
  Step step = packed_step(p.lengths, golden::device());
  step.position = at::Tensor();
  return model.forward(Inputs(golden::ids_tensor(p.flat, golden::device()), golden::media_of(c, p, "left", seeing)),
                       step);
}

// Converted from its authors' files they have the model's names without PEFT's beginning, and fit files of both kinds.
TEST(Phi4Adapters, FitBothKindsOfFiles) {
  const golden::Case c("phi4_multimodal"), own("phi4mm");
  const test::Folder folder;
  c10::AutoGradMode no_grad(false);
  const auto model = owned(c.dir / "checkpoint");
  const at::Tensor plain_TD = states_of(c, *model);
  LoraConfig config{.r = 2, .alpha = 4};
  config.target_regex = "model.layers.\\d+.((self_attn.(qkv|o)_proj)|(mlp.(gate_up|down)_proj))", config.init = "false";
  const Adapter adapter = make_adapter(*model, std::move(config), 1);
  const auto dir = folder.path / "vision-lora";
  std::filesystem::create_directories(dir);
  save_adapter(*model, adapter, dir, {});
  const at::Tensor wanted_TD = states_of(c, *model);
  EXPECT_GT(max_abs(wanted_TD, plain_TD), 0.1);

  std::vector<std::pair<std::string, at::Tensor>> bare;
  const auto file = SafetensorsFile::open(dir / "adapter_model.safetensors");
  for (const auto& [name, entry] : file->entries())
    bare.emplace_back(name.substr(std::string("base_model.model.").size()), file->tensor(name).clone());
  EXPECT_EQ(bare.size(), 2 * 4 * 2u);
  write_safetensors(dir / "adapter_model.safetensors", bare);
  for (const golden::Case* files : {&c, &own}) {
    const auto again = owned(files->dir / "checkpoint");
    load_adapter(*again, dir);
    EXPECT_LT(max_abs(states_of(c, *again), wanted_TD), 1e-5);
    const auto merged = folder.path / files->dir.filename();
    merge_adapters({.base = files->dir / "checkpoint", .parts = {{dir}}, .output = merged, .dtype = at::kFloat});
    EXPECT_LT(max_abs(states_of(c, *owned(merged)), wanted_TD), 1e-3);
  }
}

}  // namespace
}  // namespace apus
