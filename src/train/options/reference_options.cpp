// SPDX-License-Identifier: Apache-2.0
#include "train/options/reference_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"

namespace apus {

void ReferenceOptions::fields(OptionTable& v) {
  v.group("Reference");
  v("ref_model", ref_model, "the model that the trained one is compared with: a folder, or a hub's id")
      .common()
      .shown_default("LoRA: the model with its adapter off; else --model as it is at the start");
  v("ref_adapters", ref_adapters, "a LoRA adapter on the reference: the one that the run began from").must_match();
  v("precompute_ref_log_probs", precompute_ref_log_probs,
    "ask the reference once for every row before the run instead of in each step; its memory is then given back");
  v("ref_log_probs_file", ref_log_probs_file,
    "keep what was asked in this file: a later run asks the same reference only for rows that are not in it");
  v.no_effect({"ref_model_type"}, "a checkpoint's config.json says what it is");
  v.refuse({"ref_model_revision"}, "--ref_model takes a folder: download that revision first");
}

void ReferenceOptions::check(bool used) const {
  require(
      used || !precompute_ref_log_probs, Fault::Usage,
      "--precompute_ref_log_probs asks what the policy is compared with, and with these options it is compared with "
      "nothing: leave it out");
  require(ref_adapters.size() <= 1, Fault::Usage, "--ref_adapters takes one adapter, not ", ref_adapters.size());
  require(!ref_log_probs_file || precompute_ref_log_probs, Fault::Usage,
          "--ref_log_probs_file keeps what --precompute_ref_log_probs true asks: give both");
  std::error_code code;
  for (const std::string& dir : ref_adapters)
    require(std::filesystem::is_directory(dir, code), Fault::Usage, "--ref_adapters ", dir, " is not a folder here");
}

void ReferenceOptions::forget_unused() {
  if (!ref_model && ref_adapters.empty()) return;
  log_warning(
      "--ref_model and --ref_adapters are not read: with these options (--beta 0, reference_free) the policy is "
      "compared with nothing");
  ref_model.reset(), ref_adapters.clear();
}

}  // namespace apus
