// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/chat_spec.h"

#include "base/options.h"
#include "text/agent_template.h"

namespace apus {

void ChatSpec::fields(OptionTable& v) {
  const char* const of_template = "the template's";
  v("chat_template", chat_template, "Jinja chat template: a file, or its text")
      .shown_default("the checkpoint's")
      .restored("model");
  v("chat_template_kwargs", chat_template_kwargs, "further variables for the chat template, as a JSON object");
  v("agent_template", agent_template, "how tools are told to the model, called and answered")
      .choices(AgentTemplate::names())
      .shown_default(of_template)
      .restored("model");
  v("system", system, "system prompt: text, or a .txt file; \\n means a new line")
      .common()
      .shown_default(of_template)
      .restored("model");
  v("use_chat_template", use_chat_template, "false: the messages' text as it is, without a template").restored("model");
  v("enable_thinking", enable_thinking, "for templates that can switch thinking on and off")
      .shown_default(of_template)
      .restored("model");
  v("response_prefix", response_prefix, "text that every answer begins with");
  v("max_length", max_length, "longest prompt in tokens").common().at_least(1).shown_default("the model's context");
  v("truncation_strategy", truncation_strategy, "for longer prompts: leave the row out, or cut it on one side")
      .choices({"delete", "left", "right"});
}

}  // namespace apus
