// SPDX-License-Identifier: Apache-2.0
// The project's own chat templates, for checkpoints that bring none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace apus {

std::string_view builtin_template(std::string_view name);  // empty: there is none of that name
// The one on which models of this model_type were trained that bring none; "": there is none such.
std::string builtin_template_of(std::string_view family);
// Whether the template in tokenizer_config.json of such checkpoints is another model's, and is passed over.
bool tokenizers_template_is_foreign(std::string_view family);
std::vector<std::string> builtin_template_names();
// The Jinja text of the flags --template (one of these) or --chat_template (a file, or the text);
// "" where neither is given.
std::string chosen_template(const std::string& builtin, const std::string& chat_template);

}  // namespace apus
