// SPDX-License-Identifier: Apache-2.0
// Ollama's Modelfile for a checkpoint or a GGUF file. No tensor library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "text/chat_template.h"

namespace apus {

// A chat as text around what is said; from renderings of a chat template.
struct TurnForm {
  std::string before_system, after_system;  // of a system prompt
  std::string without_system;               // what stands in its place
  std::string before_prompt, after_prompt;  // the latter begins the answer
  std::string after_answer;
};
// Empty for a template that does not put its turns one behind the other in one form.
std::optional<TurnForm> turn_form(const ChatTemplate& chat);

std::string go_template(const TurnForm& form);  // as ollama's TEMPLATE

// Modelfile of the checkpoint in `folder`, which reads its weights `from`: a folder or a .gguf file. `note` says what
// is left out.
std::string modelfile(const std::filesystem::path& folder, const std::filesystem::path& from,
                      const std::optional<ChatTemplate>& chat, std::string* note);

}  // namespace apus
