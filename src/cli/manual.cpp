// SPDX-License-Identifier: Apache-2.0
// Manual pages in roff's man macros.
#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "base/option_value.h"
#include "cli/shell_words.h"

namespace apus {
namespace {

constexpr std::pair<Fault, const char*> kFaults[] = {
    {Fault::Usage, "The command line asks for what cannot be"},
    {Fault::Data, "Rows cannot be used"},
    {Fault::Model, "A checkpoint cannot be used"},
    {Fault::Device, "A device or its memory fails, or a plan does not fit"},
    {Fault::Comm, "Processes cannot reach each other"},
    {Fault::Io, "A file, a disk or a connection fails"},
    {Fault::Bug, "A defect of the program"},
};

// Text as roff takes it: no backslash acts, no hyphen becomes a dash, no line begins with a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string heading(const std::string& title, const std::string& version) {
  return str(".TH ", roff(title), " 1 \"\" \"apus ", version, "\" \"Apus\"\n");
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string option_entry(const Option& option) {
  std::string out = str(".TP\n.B ", roff("--" + option.name), "\n", roff(option.help), ".");
  if (!option.allowed.empty()) out += str(" One of: ", roff(join(option.allowed)), ".");
  const std::string usual = option.is_required ? option.default_text : default_text(option);
  if (!usual.empty()) out += str(" Default: ", roff(usual), ".");
  return out + (option.is_required ? " Needed.\n" : "\n");
}

std::string examples(const CommandInfo& info) {
  if (info.examples.empty()) return "";
  std::string out = ".SH EXAMPLES\n.nf\n";
  for (const std::string& example : info.examples) out += roff("apus " + example) + "\n";
  return out + ".fi\n";
}

std::string page_of(const Command& command, const std::string& version) {
  const std::string name = "apus-" + command.info.name;
  std::string out = heading(upper(name), version);
  out += str(".SH NAME\n", roff(name), " \\- ", roff(command.info.summary), "\n");
  out += str(".SH SYNOPSIS\n.B apus ", roff(command.info.name), "\n[FILE.yaml] [\\-\\-option value ...]\n");
  const auto instance = command.make();
  std::string group;
  for (const auto& option : instance->table.options()) {
    if (!can_be_given(*option)) continue;
    if (option->group != group) out += str(".SH ", upper(roff(group = option->group)), "\n");
    out += option_entry(*option);
  }
  return out + examples(command.info) + ".SH SEE ALSO\n.BR apus (1)\n";
}

std::string page_of_program(const std::vector<const Command*>& commands, const std::string& version) {
  std::string out = heading("APUS", version);
  out +=
      ".SH NAME\napus \\- fine\\-tunes, aligns, runs and serves large language models\n"
      ".SH SYNOPSIS\n.B apus\nCOMMAND [FILE.yaml] [\\-\\-option value ...]\n"
      ".SH DESCRIPTION\nModels are folders as HuggingFace and ModelScope have them, .gguf files, or the ids of "
      "either hub. Options may stand in a YAML or JSON file, which comes first; options on the command line win. "
      "\\-\\-help shows a command's usual options, \\-\\-help all every one.\n.SH COMMANDS\n";
  for (const Command* command : commands)
    if (!command->info.group.empty())
      out += str(".TP\n.B ", roff(command->info.name), "\n", roff(command->info.summary), ".\n");
  out += ".SH EXIT STATUS\n";
  out += ".TP\n.B 0\nAll went well.\n";
  for (const auto& [fault, meaning] : kFaults) out += str(".TP\n.B ", exit_code(fault), "\n", meaning, ".\n");
  return out + ".SH SEE ALSO\n.B apus manual\nCOMMAND writes the page of a command.\n";
}

}  // namespace

std::string manual_page(const std::vector<const Command*>& commands, const Command* command,
                        const std::string& version) {
  return command ? page_of(*command, version) : page_of_program(commands, version);
}

}  // namespace apus
