// SPDX-License-Identifier: Apache-2.0
// What a training run came to: as the last line of logging.jsonl, and as users read it.
#pragma once

#include <string>

#include "cli/train.h"
#include "run/train_data.h"
#include "train/record/run_log.h"
#include "train/trainer.h"

namespace apus {

Json result_json(const TrainResult& r, const TrainData& data, const std::string& parameters,
                 const std::string& best_name);
void say_result(const TrainRun& o, const TrainResult& r, const RunLog& log);  // and what one does with its checkpoint

}  // namespace apus
