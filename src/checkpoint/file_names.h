// SPDX-License-Identifier: Apache-2.0
// What the files beside the weights are called, in the folders of models, adapters and runs. No tensor library.
// (tensor/weight_files knows the weights' own.)
#pragma once

namespace apus {

inline constexpr const char* kModelConfigFile = "config.json";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterExtrasFile = "additional_config.json";  // types and learning rates of its training
inline constexpr const char* kArgumentsFile = "args.json";                   // the options of the run that made it
inline constexpr const char* kTrainerStateFile = "trainer_state.json";       // progress, with HuggingFace's keys
inline constexpr const char* kRunStateFile = "apus_state.json";              // what a resumed run needs besides
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

inline constexpr const char* kModelWeights = "model";  // stems of weight files
inline constexpr const char* kAdapterWeights = "adapter_model";
inline constexpr const char* kOptimizerStem = "optimizer";

// Of hidden folders that belong to a process that is running: .checkpoint-10.partial-<process>.
inline constexpr const char* kPartialMark = ".partial-";

}  // namespace apus
