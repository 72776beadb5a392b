// SPDX-License-Identifier: Apache-2.0
// What of a checkpoint's files a model does not read.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace apus {

class Model;
class TensorFolder;

// Tensors of a checkpoint that no parameter is filled with, by name: of layers that guess tokens ahead, of the parts of
// a model that speak, draw or hear where this one does not, and of an encoder's heads for other tasks.
struct UnreadTensors {
  std::vector<std::string> ahead, speech, drawing, hearing, adapters, heads;
};
// `used`: the names that are read; `unexpected` gets those that nobody knows.
UnreadTensors unread_tensors(const Model& model, const TensorFolder& source, const std::set<std::string>& used,
                             std::vector<std::string>& unexpected);
// Whether a tensor or module is of the layers that guess tokens ahead: by their own name, or behind the last one.
bool guesses_ahead(const Model& model, const std::string& name);
void tell_unread(const UnreadTensors& unread, const Model& model);
// Fault::Model where a head that guesses, which the model is to have, is among the missing tensors: many files leave it
// out, whatever config.json says.
void require_guess_head(Model& model, const std::vector<std::string>& missing);

}  // namespace apus
