// SPDX-License-Identifier: Apache-2.0
// The parts of `apus infer`: rows that are answered, rows that get numbers, and a chat.
#pragma once

#include <string>

#include "cli/infer.h"
#include "engine/answer/answer_text.h"
#include "run/inference.h"

namespace apus {

int infer_rows(const InferOptions& options, Inference& inference, const std::string& result_path);
int infer_numbers(const InferOptions& options, const std::string& result_path);  // of a model that gives no words
int infer_chat(const InferOptions& options, Inference& inference, const std::string& result_path);

Sampling infer_sampling(const InferOptions& options, const Inference& inference);
AnswerText::Spec answer_spec(const InferOptions& options, const Inference& inference);

}  // namespace apus
