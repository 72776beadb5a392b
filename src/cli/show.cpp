// SPDX-License-Identifier: Apache-2.0
// `apus show`: what a checkpoint is, what its files say, and whether they belong together.
#include "cli/show.h"

#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/heavy.h"
#include "cli/plan_spec.h"
#include "engine/answer/generation_config.h"
#include "models/spec/score_head.h"
#include "plan/model_facts.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace apus {

void ShowOptions::fields(OptionTable& v) {
  v.group("Show");
  v("model", model, "folder of the checkpoint, a GGUF file, or a hub's id").common();
  v("weights", weights,
    "hold the files of weights against config.json: every tensor has its place, and none is missing")
      .common();
  hub.fields(v);
}

void ShowOptions::resolve(OptionTable& v) {
  hub.resolve();
  model = model_meant(model, v);
}

namespace {
void line(const char* title, const std::string& text) { std::printf("%-14s %s\n", title, text.c_str()); }

std::string thousands(int64_t n) {
  std::string out = std::to_string(n);
  for (auto at = static_cast<int64_t>(out.size()) - 3; at > 0; at -= 3) out.insert(static_cast<size_t>(at), " ");
  return out;
}

void show_model(const Json& config, const ModelFacts& m) {
  const Json names = config.value("architectures", Json::array());
  line("family",
       str(m.type, !names.empty() && names[0].is_string() ? str(" (", names[0].get<std::string>(), ")") : ""));
  const bool mixture = m.experts > 0;
  line("parameters", str(thousands(m.parameters()),
                         mixture ? str(", ", thousands(m.active_parameters()), " of which a token meets") : "",
                         m.dtype.empty() ? "" : ", saved in " + m.dtype));
  line("layers",
       str(m.layers, " of width ", m.hidden, ", ", m.heads, m.kv_heads == m.heads ? "" : str(" over ", m.kv_heads),
           " heads", mixture ? str("; ", m.experts, " experts, ", m.per_token, " for a token") : "",
           m.state_layers > 0 ? str("; ", m.state_layers, " of them keep a state") : ""));
  if (m.positions > 0) line("context", thousands(m.positions) + " tokens");
  if (m.seeing) {
    const bool sees = m.seeing->vision.width > 0, videos = m.seeing->video_token >= 0;
    line(sees ? "sees" : "hears", !sees               ? "sounds"
                                  : m.seeing->hearing ? videos ? "images, videos and sounds" : "images and sounds"
                                  : videos            ? "images and videos"
                                                      : "images");
  }
  if (const auto head = score_head_of(config))
    line("gives", head->labels == 1 ? "a score" : str(head->labels, " labels"));
  if (const auto packed = config.find("quantization_config"); packed != config.end() && packed->is_object())
    line("quantised", packed->value("quant_method", std::string("yes")));
}

void show_talk(const std::filesystem::path& folder) {
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(folder);
  } catch (const Error& none) {
    return line("tokenizer", str("not read: ", none.what()));
  }
  std::vector<std::string> ends;
  for (const int32_t id : read_generation_config(folder).eos) ends.push_back(str(tokenizer->piece(id), " (", id, ")"));
  line("tokenizer", str(thousands(tokenizer->vocab_size()), " tokens; an answer ends with ",
                        ends.empty() ? "none of them: eos_token_id is said nowhere" : join(ends)));
  const auto chat = ChatTemplate::find(folder);
  if (!chat)
    return line("chat template", "none: --template names one of the program's own, or the model continues texts");
  line("chat template", str("its own; tool calls: ", tool_format_name(chat->tool_format()),
                            guess_reasoning(chat->text()) ? "; it thinks first" : ""));
}

int run(const ShowOptions& options) {
  ShowOptions o = options;
  require(!o.model.empty(), Fault::Usage, "--model is needed: the checkpoint to show");
  o.folder = o.hub.fetched_model(o.model, o.weights);
  const Json config = config_named(o.folder);
  show_model(config, model_facts(config));
  show_talk(o.folder);
  std::fflush(stdout);
  const int code = o.weights ? run_heavy("show", &o) : 0;
  line("can", "apus abilities --model " + o.model);
  return code;
}

const RegisterCommand<ShowOptions> show_command(
    {.name = "show",
     .group = "Machine",
     .summary = "what a checkpoint is, how it talks, and whether its files belong together",
     .examples = {"show --model DIR", "show --model DIR --weights false"}},
    run);
}  // namespace

}  // namespace apus
