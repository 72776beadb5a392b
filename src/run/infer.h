// SPDX-License-Identifier: Apache-2.0
// The two halves of `apus infer`: rows of a file, and a chat.
#pragma once

#include <string>

#include "cli/infer.h"
#include "engine/answer/answer_text.h"
#include "run/inference.h"

namespace apus {

int infer_rows(const InferOptions& options, Inference& inference, const std::string& result_path);
int infer_chat(const InferOptions& options, Inference& inference, const std::string& result_path);

Sampling infer_sampling(const InferOptions& options, const Inference& inference);
AnswerText::Spec answer_spec(const InferOptions& options, const Inference& inference);

}  // namespace apus
