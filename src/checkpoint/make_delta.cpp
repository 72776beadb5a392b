// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/make_delta.h"

#include "base/error.h"
#include "nn/adalora.h"
#include "nn/boft.h"
#include "nn/bone.h"
#include "nn/bottleneck.h"
#include "nn/fourier.h"
#include "nn/lora.h"
#include "nn/prompt_rows.h"
#include "nn/rescale.h"

namespace apus {
namespace {

std::unique_ptr<TrainedDelta> lora_delta(const LoraConfig& c, const DeltaPlace& p) {
  require(!c.lora_bias || !p.sides.looks_up, Fault::Model, "lora_bias on the embedding ", p.module,
          " is not available");
  return std::make_unique<Lora>(Lora::Spec{.in = p.sides.in,
                                           .out = p.sides.out,
                                           .rank = c.rank_of(p.module),
                                           .alpha = c.alpha_of(p.module),
                                           .dropout = c.dropout,
                                           .rank_stabilised = c.rslora,
                                           .dora = c.dora,
                                           .biased = c.lora_bias,
                                           .id = p.id,
                                           .looks_up = p.sides.looks_up},
                                p.bias);
}

std::unique_ptr<TrainedDelta> adalora_delta(const LoraConfig& c, const DeltaPlace& p) {
  return std::make_unique<AdaLora>(AdaLora::Spec{.in = p.sides.in,
                                                 .out = p.sides.out,
                                                 .rank = c.rank_of(p.module),
                                                 .alpha = c.alpha,
                                                 .dropout = c.dropout,
                                                 .first_rank = c.r,
                                                 .id = p.id});
}

}  // namespace

std::shared_ptr<SharedMatrices> shared_matrices(const LoraConfig& c, Adaptable::Sides widest, const AdapterFile* file) {
  if (c.kind != "vera") return nullptr;
  if (const auto saved = file ? file->shared_matrices() : std::nullopt)
    return std::make_shared<SharedMatrices>(saved->first, saved->second);
  return SharedMatrices::drawn(c.r, widest.in, widest.out, static_cast<uint64_t>(c.vera.key));
}

std::unique_ptr<TrainedDelta> make_delta(const LoraConfig& c, const DeltaPlace& p) {
  if (c.kind == "prompt_tuning")
    return std::make_unique<PromptRows>(
        PromptRows::Spec{.words = c.prompt.words, .table = p.sides.in, .size = p.sides.out, .text = c.prompt.text_ids});
  require(c.kind == "lora" || !p.sides.looks_up, Fault::Usage, adapter_title(c), " on the embedding ", p.module,
          " is not available: leave it out of --target_modules, or train it whole with --modules_to_save");
  const bool whole = c.dora || c.kind == "boft" || c.kind == "ia3" || c.kind == "fourierft";
  require(!whole || (!p.sides.looks_up && p.module != "lm_head"), Fault::Usage, adapter_title(c), " on ", p.module,
          " is not available: it needs products that are never made whole. Leave it out of --target_modules, or train "
          "it whole with --modules_to_save");
  if (c.kind == "adalora") return adalora_delta(c, p);
  if (c.kind == "adapter")
    return std::make_unique<Bottleneck>(Bottleneck::Spec{.out = p.sides.out, .length = c.r, .act = c.act, .id = p.id});
  if (c.kind == "bone")
    return std::make_unique<Bone>(
        Bone::Spec{.in = p.sides.in, .out = p.sides.out, .rank = c.r, .id = p.id, .old_name = c.old_bone});
  if (c.kind == "boft")
    return std::make_unique<Boft>(Boft::Spec{.in = p.sides.in,
                                             .out = p.sides.out,
                                             .block = boft_block(c.boft, p.module, p.sides.in),
                                             .factors = c.boft.factors,
                                             .id = p.id},
                                  p.bias);
  if (c.kind == "ia3")
    return std::make_unique<Rescale>(
        Rescale::Spec{.in = p.sides.in, .out = p.sides.out, .inputs = c.scales_inputs(p.module), .id = p.id}, p.bias);
  if (c.kind == "fourierft")
    return std::make_unique<FourierChange>(FourierChange::Spec{.in = p.sides.in,
                                                               .out = p.sides.out,
                                                               .frequencies = c.fourier.frequencies,
                                                               .scaling = c.fourier.scaling,
                                                               .places = static_cast<uint32_t>(c.fourier.seed),
                                                               .id = p.id});
  if (c.kind == "vera")
    return std::make_unique<Vera>(Vera::Spec{.in = p.sides.in,
                                             .out = p.sides.out,
                                             .rank = c.r,
                                             .dropout = c.dropout,
                                             .first_d = c.vera.first_d,
                                             .id = p.id},
                                  p.shared);
  return lora_delta(c, p);
}

}  // namespace apus
