// SPDX-License-Identifier: Apache-2.0
// Written for this project after the formats that models were trained on. What the assistant says stands in
// `generation` blocks, so that training knows what to learn.
#include "text/builtin_templates.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"

namespace apus {

namespace {

// Text of a message: a string, a list of text parts, or nothing.
constexpr std::string_view kTextOf = R"({%- macro text_of(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content is not none and content is defined -%}
    {%- for part in content -%}
      {%- if part is string -%}
        {{- part -}}
      {%- elif part.text is string -%}
        {{- part.text -}}
      {%- else -%}
        {{- raise_exception('this chat template takes text only, not a part of type ' ~ part.type) -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
)";

// <|im_start|>role\n...<|im_end|>\n; tools as JSON lines in the system message, calls and results between tags.
constexpr std::string_view kChatml = R"({%- set first_is_system = messages and messages[0].role == 'system' -%}
{%- if tools or first_is_system -%}
  {{- '<|im_start|>system\n' -}}
  {%- if first_is_system -%}
    {{- text_of(messages[0].content) -}}
  {%- endif -%}
  {%- if tools -%}
    {{- '\n\n' if first_is_system -}}
    {{- '# Tools\n\nYou may call functions to help the user. These are the functions, one JSON object per line:\n<tools>\n' -}}
    {%- for tool in tools -%}
      {{- tool | tojson ~ '\n' -}}
    {%- endfor -%}
    {{- '</tools>\n\nTo call a function, write its name and its arguments as JSON between these tags:\n<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>' -}}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- generation -%}
      {%- if message.reasoning_content is string and message.reasoning_content -%}
        {{- '<think>\n' ~ message.reasoning_content.strip('\n') ~ '\n</think>\n\n' -}}
      {%- endif -%}
      {%- set said = text_of(message.content) -%}
      {{- said -}}
      {%- for call in message.tool_calls or [] -%}
        {%- set function = call.function or call -%}
        {{- '\n' if said or not loop.first -}}
        {{- '<tool_call>\n{"name": ' ~ function.name | tojson ~ ', "arguments": ' -}}
        {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
        {{- '}\n</tool_call>' -}}
      {%- endfor -%}
      {{- '<|im_end|>' -}}
    {%- endgeneration -%}
    {{- '\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' -}}
    {{- '\n<tool_response>\n' ~ text_of(message.content) ~ '\n</tool_response>' -}}
    {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' -}}
  {%- elif not (loop.first and first_is_system) -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ text_of(message.content) ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {{- '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false -}}
{%- endif -%}
)";

// <|start_header_id|>role<|end_header_id|>\n\n...<|eot_id|>; a tool call is the whole message, as JSON.
constexpr std::string_view kLlama3 = R"({%- set first_is_system = messages and messages[0].role == 'system' -%}
{{- bos_token -}}
{%- if tools or first_is_system -%}
  {{- '<|start_header_id|>system<|end_header_id|>\n\n' -}}
  {%- if first_is_system -%}
    {{- text_of(messages[0].content) | trim -}}
  {%- endif -%}
  {%- if tools -%}
    {{- '\n\n' if first_is_system -}}
    {{- 'You may call these functions:\n\n' -}}
    {%- for tool in tools -%}
      {{- tool | tojson(indent=4) ~ '\n\n' -}}
    {%- endfor -%}
    {{- 'To call one, answer with nothing but a JSON object {"name": the function, "parameters": {argument: value}}.' -}}
  {%- endif -%}
  {{- '<|eot_id|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
    {%- generation -%}
      {%- if message.tool_calls -%}
        {%- if message.tool_calls | length > 1 -%}
          {{- raise_exception('this chat template takes one tool call per message') -}}
        {%- endif -%}
        {%- set function = message.tool_calls[0].function or message.tool_calls[0] -%}
        {{- '{"name": ' ~ function.name | tojson ~ ', "parameters": ' -}}
        {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
        {{- '}' -}}
      {%- else -%}
        {{- text_of(message.content) | trim -}}
      {%- endif -%}
      {{- '<|eot_id|>' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'tool' or message.role == 'ipython' -%}
    {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' ~ text_of(message.content) | trim ~ '<|eot_id|>' -}}
  {%- elif not (loop.first and first_is_system) -%}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ text_of(message.content) | trim ~ '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// ### Human and ### Assistant, for base models without tokens for roles.
constexpr std::string_view kPlainTurns = R"({{- bos_token -}}
{%- if not (messages and messages[0].role == 'system') -%}
  {{- 'You are a helpful assistant.\n\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message.content) ~ (eos_token if loop.last else '\n\n') -}}
    {%- endgeneration -%}
  {%- elif message.role == 'system' -%}
    {{- text_of(message.content) ~ '\n\n' -}}
  {%- else -%}
    {{- '### Human:\n' ~ text_of(message.content) ~ '\n\n### Assistant:\n' -}}
  {%- endif -%}
{%- endfor -%}
)";

// No marks at all, for base models: the messages' texts with a blank line between.
constexpr std::string_view kPlain = R"({%- for message in messages -%}
  {{- '\n\n' if not loop.first -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message.content) ~ eos_token -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message.content) -}}
  {%- endif -%}
{%- endfor -%}
{{- '\n\n' if add_generation_prompt and messages -}}
)";

// Pictures, the mark of the beginning, the question, a line feed. Checkpoints bring no template.
constexpr std::string_view kPaliGemma = R"({%- macro said(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- else -%}
    {%- for part in content -%}
      {{- '<image>' if part.type == 'image' else part.text -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- said(message.content) ~ eos_token -}}
    {%- endgeneration -%}
  {%- elif message.role == 'user' -%}
    {%- set parts = said(message.content).split('<image>') -%}
    {{- '<image>' * (parts | length - 1) ~ bos_token ~ parts | join('') | trim ~ '\n' -}}
  {%- else -%}
    {{- raise_exception('PaliGemma reads a question, and no ' ~ message.role ~ ' message') -}}
  {%- endif -%}
{%- endfor -%}
)";

// Roles as words with marks around them, a blank line between; each answer has its end. Checkpoints bring no template.
constexpr std::string_view kDeepseekVl2 = R"({{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message.content) ~ eos_token -}}
    {%- endgeneration -%}
  {%- elif message.role == 'system' -%}
    {{- text_of(message.content) -}}
  {%- else -%}
    {{- '<|User|>: ' ~ text_of(message.content) ~ '\n\n<|Assistant|>:' -}}
  {%- endif -%}
{%- endfor -%}
)";

// Mistral's turns since 2024's end. Checkpoints of Voxtral bring no template; their programs write this.
constexpr std::string_view kMistral = R"({{- '<s>' -}}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message.content) ~ '</s>' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'system' -%}
    {{- '[SYSTEM_PROMPT]' ~ text_of(message.content) ~ '[/SYSTEM_PROMPT]' -}}
  {%- elif message.role == 'user' -%}
    {{- '[INST]' ~ text_of(message.content) ~ '[/INST]' -}}
  {%- else -%}
    {{- raise_exception('this chat template takes no ' ~ message.role ~ ' message') -}}
  {%- endif -%}
{%- endfor -%}
)";

// Gemma's turns; what the system says stands before the first question. Checkpoints of Gemma 3n that are not tuned to
// chat bring no template, and are tuned on this.
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set told = namespace(before='') -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<start_of_turn>model\n' -}}
    {%- generation -%}
      {{- text_of(message.content).strip('\n') ~ '<end_of_turn>' -}}
    {%- endgeneration -%}
    {{- '\n' -}}
  {%- elif message.role == 'system' and loop.first -%}
    {%- set told.before = text_of(message.content) ~ '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- '<start_of_turn>user\n' ~ told.before ~ text_of(message.content) ~ '<end_of_turn>\n' -}}
    {%- set told.before = '' -%}
  {%- else -%}
    {{- raise_exception('this chat template takes no ' ~ message.role ~ ' message here') -}}
  {%- endif -%}
{%- endfor -%}
{{- '<start_of_turn>model\n' if add_generation_prompt -}}
)";

// What was said before, as the system's words; a sound; the marks of language and task; what is said. Checkpoints bring
// no template. `marks_follow`: the marks begin the answer.
constexpr std::string_view kWhisper = R"({%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message.content) ~ '<|endoftext|>' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'user' -%}
    {%- set told = text_of(message.content) -%}
    {%- if told == '<|startoftranscript|>' and not marks_follow -%}
      {{- raise_exception('say language and task behind the sound: <audio><|en|><|transcribe|><|notimestamps|> (models of English alone: <audio><|notimestamps|>)') -}}
    {%- endif -%}
    {{- told -}}
  {%- elif message.role == 'system' -%}
    {{- '<|startofprev|> ' ~ text_of(message.content) | trim -}}
  {%- else -%}
    {{- raise_exception('Whisper reads a sound, and no ' ~ message.role ~ ' message') -}}
  {%- endif -%}
{%- endfor -%}
)";

// ChatML without line feeds between turns, and what the system says where nobody else does: the model's makers, and
// its name. The template in its checkpoints' tokenizer_config.json is another model's, whose marks theirs do not know.
constexpr std::string_view kSailVl2 = R"({%- if not (messages and messages[0].role == 'system') -%}
  {{- '<|im_start|>system\n你是由抖音内容理解组开发的多模态大模型，英文名叫UniVL, 是一个有用无害的人工智能助手。<|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- generation -%}
      {{- text_of(message.content) ~ '<|im_end|>' -}}
    {%- endgeneration -%}
  {%- elif message.role in ['system', 'user'] -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ text_of(message.content) ~ '<|im_end|>' -}}
  {%- else -%}
    {{- raise_exception('this chat template takes no ' ~ message.role ~ ' message') -}}
  {%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\n' if add_generation_prompt -}}
)";

// ChatML with what the system says where nobody else does.
std::string chatml_with(const std::string& system) {
  return std::string(kTextOf) +
         "{%- if not (messages and messages[0].role == 'system') -%}\n"
         "  {%- set messages = [{'role': 'system', 'content': '" +
         system + "'}] + messages -%}\n{%- endif -%}\n" + std::string(kChatml);
}

struct Builtin {
  std::string_view name;
  std::string text;
  std::string_view family = {};  // the model_type whose checkpoints bring no template, and were trained on this one
  bool tokenizers_is_foreign = false;  // they have another model's in tokenizer_config.json
};

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> all = {
      {"paligemma", std::string(kPaliGemma), "paligemma"},
      {"qwen", chatml_with("You are a helpful assistant."), "qwen"},
      {"got_ocr2",
       chatml_with("        You should follow the instructions carefully and explain "
                   "your answers in detail."),
       "GOT"},
      {"deepseek_vl2", std::string(kTextOf) + std::string(kDeepseekVl2)},
      {"mistral", std::string(kTextOf) + std::string(kMistral), "voxtral"},
      {"sail_vl2", std::string(kTextOf) + std::string(kSailVl2), "sailvl", true},
      {"gemma", std::string(kTextOf) + std::string(kGemma), "gemma3n"},
      {"whisper", std::string(kTextOf) + std::string(kWhisper), "whisper"},
      {"chatml", std::string(kTextOf) + std::string(kChatml)},
      {"llama3", std::string(kTextOf) + std::string(kLlama3)},
      {"default", std::string(kTextOf) + std::string(kPlainTurns)},
      {"plain", std::string(kTextOf) + std::string(kPlain)}};
  return all;
}

}  // namespace

std::string_view builtin_template(std::string_view name) {
  const auto& all = builtins();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Builtin& one) { return one.name == name; });
  return it == all.end() ? std::string_view() : std::string_view(it->text);
}

std::string builtin_template_of(std::string_view family) {
  for (const Builtin& one : builtins())
    if (!family.empty() && one.family == family) return std::string(one.name);
  return "";
}

bool tokenizers_template_is_foreign(std::string_view family) {
  const auto& all = builtins();
  return std::any_of(all.begin(), all.end(),
                     [&](const Builtin& one) { return one.tokenizers_is_foreign && one.family == family; });
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> out;
  for (const Builtin& one : builtins()) out.emplace_back(one.name);
  return out;
}

std::string chosen_template(const std::string& builtin, const std::string& chat_template) {
  require(builtin.empty() || chat_template.empty(), Fault::Usage, "--template ", builtin,
          " and --chat_template name two templates; give one of them");
  const std::string_view own = builtin_template(builtin);
  require(builtin.empty() || !own.empty(), Fault::Usage, "--template ", builtin,
          " is not possible: the checkpoint's own chat template is used when this is left out; one of the program's "
          "own is ",
          join(builtin_template_names(), " or "), "; any other: --chat_template FILE.jinja");
  if (!builtin.empty()) return std::string(own);
  const bool names_file = !chat_template.empty() && chat_template.find('{') == std::string::npos;
  return names_file ? read_file(chat_template, 16 << 20) : chat_template;
}

}  // namespace apus
