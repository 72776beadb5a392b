// SPDX-License-Identifier: Apache-2.0
// `megatron export`: between Megatron's own checkpoints and HuggingFace's. All are HuggingFace's here.
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/megatron.h"

namespace apus {

namespace {

// How many processes convert, in which numbers that is tried, and which layers they would know.
const std::set<std::string> kOfTheConversion = {"tensor_model_parallel_size",
                                                "pipeline_model_parallel_size",
                                                "context_parallel_size",
                                                "expert_model_parallel_size",
                                                "expert_tensor_parallel_size",
                                                "sequence_parallel",
                                                "decoder_first_pipeline_num_layers",
                                                "decoder_last_pipeline_num_layers",
                                                "pipeline_model_parallel_layout",
                                                "linear_decoupled_in_proj",
                                                "mtp_num_layers",
                                                "test_convert_precision",
                                                "test_convert_dtype",
                                                "thread_count",
                                                "offload_bridge",
                                                "fp8_param_gather"};

bool is_true(const MegatronFlag& flag) {
  return flag.values.empty() || flag.values[0] == "true" || flag.values[0] == "True" || flag.values[0] == "1";
}

}  // namespace

OwnFlags own_export_flags(const std::vector<std::string>& megatron_arguments) {
  OwnFlags out;
  std::vector<std::string> unused;
  bool anew = false, merges = false, fp8 = false;
  const auto give = [&](const std::string& name, const std::vector<std::string>& values) {
    out.arguments.push_back("--" + name);
    out.arguments.insert(out.arguments.end(), values.begin(), values.end());
  };
  for (const MegatronFlag& flag : megatron_flags(megatron_arguments)) {
    const std::string value = flag.values.empty() ? "" : flag.values[0];
    if (kOfTheConversion.count(flag.name)) {
      unused.push_back("--" + flag.name);
    } else if (flag.name == "to_mcore" || flag.name == "to_hf") {
      anew = anew || is_true(flag);
    } else if (flag.name == "mcore_model" || flag.name == "mcore_adapter") {
      give(flag.name == "mcore_model" ? "model" : "adapters", flag.values);
    } else if (flag.name == "fp8_recipe" || flag.name == "fp8_format") {
      require(value == (flag.name == "fp8_recipe" ? "blockwise" : "e4m3"), Fault::Usage, "--", flag.name, " ", value,
              " is not possible; possible: --fp8_recipe blockwise --fp8_format e4m3");
      fp8 = true;
    } else {
      merges = merges || (flag.name == "merge_lora" && is_true(flag));
      if (flag.name.empty())
        out.arguments.insert(out.arguments.end(), flag.values.begin(), flag.values.end());
      else
        give(flag.name, flag.values);
    }
  }
  if (fp8) give("quant_method", {"fp8"});
  if (anew && !merges && !fp8) give("to_hf", {"true"});
  if (anew)
    out.notes.push_back(
        str("--to_mcore, --to_hf: checkpoints are HuggingFace's on both sides here, and megatron sft "
            "takes them as they are: nothing is converted; ",
            merges ? "the adapter is merged"
            : fp8  ? "the weights are quantised"
                   : "the files are written anew"));
  if (!unused.empty())
    out.notes.push_back(join(unused) + ": no effect here: tensors go from files to files one at a time, each as it is");
  return out;
}

}  // namespace apus
