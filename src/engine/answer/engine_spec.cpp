// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/engine_spec.h"

#include "base/options.h"

namespace apus {

void EngineSpec::fields(OptionTable& v) {
  v("max_num_seqs", max_sequences, "most sequences in flight").common().at_least(1).alias("vllm_max_num_seqs");
  v("max_batched_tokens", max_step_tokens, "most tokens of one forward, prompts in chunks and answers together")
      .at_least(1);
  v("memory_utilization", memory_fraction, "share of the device's memory for weights and cache")
      .common()
      .above(0)
      .at_most(1)
      .alias("gpu_memory_utilization")
      .alias("vllm_gpu_memory_utilization")
      .alias("sglang_mem_fraction_static");
  v("kv_cache_dtype", cache_type,
    "how keys and values are held: auto, as the model computes; int8 or fp8 (fp8_e4m3), in half the memory")
      .choices({"auto", "int8", "fp8", "fp8_e4m3"})
      .alias("vllm_kv_cache_dtype")
      .alias("sglang_kv_cache_dtype");
  v("enable_prefix_caching", prefix_caching, "prompts that begin alike share the work")
      .alias("vllm_enable_prefix_caching");
}

}  // namespace apus
