// SPDX-License-Identifier: Apache-2.0
// A plain model's linear layers quantised with the help of rows that it is run on, a decoder layer at a time: one
// layer's weights are wide in memory, all others stay in their mapped files, and of the rows there is what goes into
// the layer.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/model.h"
#include "quant/gptq_form.h"
#include "quant/pieces.h"

namespace apus {

struct CalibrationSpec {
  std::string method = "gptq";  // of --quant_method
  quant::GptqForm form;
  bool by_importance = false;
  std::vector<std::vector<int64_t>> blocks;  // tokens of the calibration rows
  int64_t batch = 1;                         // blocks that go through the model together
  std::vector<std::vector<int64_t>> judged;  // tokens of rows by which perplexities are told
  c10::Device device = c10::Device(c10::kCPU);
  std::function<bool(const std::string& layer)> skip;
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

// What a decoder layer has become.
struct CalibratedLayer {
  std::map<std::string, quant::Pieces> quantised;  // by the linear layer's name
  std::map<std::string, StoredTensor> changed;     // plain parameters with other numbers, by name
};

struct CalibrationReport {
  double perplexity_before = 0, perplexity = 0;  // of the judged rows; 0: the model gives no words
  std::vector<std::string> plain;                // linear layers that stay so, of odd sides
  std::vector<std::string> unmet;                // that no row reached (experts): rounded to the nearest
  std::vector<std::vector<std::string>> groups;  // those of one input, in order, named within the decoder layer
};

// `model` is loaded plain on the processor; afterwards its layers hold nothing any more. `keep` gets each layer when it
// is done.
CalibrationReport calibrate(Model& model, const CalibrationSpec& spec,
                            const std::function<void(int64_t layer, const CalibratedLayer&)>& keep);

}  // namespace apus
