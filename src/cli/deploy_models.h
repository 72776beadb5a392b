// SPDX-License-Identifier: Apache-2.0
// `apus deploy --models DIR`: the models of a folder behind one address, each loaded when it is asked for.
#pragma once

#include "cli/deploy.h"
#include "serve/household.h"

namespace apus {

int deploy_models(const DeployOptions& options);
std::vector<HouseModel> models_to_deploy(const DeployOptions& options);
int64_t memory_for_models(const DeployOptions& options);  // bytes
// Of the process that serves one of them: our own words, with others behind them, which count.
std::vector<std::string> model_command(std::vector<std::string> words, const HouseModel& model, int port,
                                       std::optional<double> cache_gb);

}  // namespace apus
