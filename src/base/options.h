// SPDX-License-Identifier: Apache-2.0
// One description per option: a struct's `fields(visitor)` names each member once, and gives the command-line flag,
// the YAML/JSON key, the help text and args.json.
//
//   struct InferOptions {
//     std::string model;
//     std::optional<double> temperature;                       // std::optional: absent means "decided elsewhere"
//     template <class V> void fields(V& v) {
//       v.group("Model");
//       v("model", model, "folder or hub id of the model").required().alias("ckpt_dir", "old spelling");
//       v("temperature", temperature, "0 means greedy").at_least(0);
//     }
//   };
//
// Member types: bool, int64_t, double, std::string, std::vector<std::string>, std::vector<double>, Json (an object,
// given as JSON text or as the path of a JSON file), and std::optional of the scalar ones.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"

namespace apus {

using OptionTarget = std::variant<std::monostate, bool*, int64_t*, double*, std::string*, std::vector<std::string>*,
                                  std::vector<double>*, Json*, std::optional<bool>*, std::optional<int64_t>*,
                                  std::optional<double>*, std::optional<std::string>*>;

// One option as described by fields(); built by OptionTable, refined by the chained calls.
class Option {
 public:
  Option(std::string name, OptionTarget target, std::string help, std::string group)
      : name(std::move(name)), target(target), help(std::move(help)), group(std::move(group)) {}

  Option& required();
  Option& choices(std::vector<std::string> allowed);
  Option& above(double limit);     // value > limit
  Option& at_least(double limit);  // value >= limit
  Option& at_most(double limit);
  Option& alias(std::string other, std::string note = "");  // another spelling, accepted with a note
  Option& refused(std::string why);                         // known, but any use is an error that says what is possible
  Option& idle(std::string value);  // of a refused one: the value with which it asks for nothing, beside false
  Option& forgives_unknown();       // on a bool: when true, unknown flags are notes instead of errors
  Option& hidden();                 // works, but is left out of --help
  Option& common();                 // among those that --help shows when nothing more is asked for
  // What a group of options refuses or cannot do, and this command does after all.
  Option& honoured(OptionTarget member, std::string explanation);
  Option& idle_for(std::string reason);     // what a group refuses, and this command has no need of
  Option& shown_default(std::string text);  // help shows this where the default is decided at run time
  Option& must_match();                     // a resumed run refuses another value than it began with
  Option& noted();                          // a resumed run warns of another value
  Option& restored(std::string kind);       // --load_args takes it from a saved args.json; kind: "model" or "data"

  std::string name;
  OptionTarget target;
  std::string help, group;
  bool is_required = false, is_hidden = false, is_common = false, is_forgiving = false, given = false;
  std::vector<std::string> allowed;
  std::vector<std::pair<std::string, std::string>> aliases;  // spelling, note
  std::optional<double> above_limit, least, most;
  std::string refusal, idle_value, default_text;
  std::string no_effect;  // accepted for the sake of existing scripts; the note that says why it changes nothing
  bool is_exact = false, is_noted = false;  // of must_match() and noted()
  std::string restored_kind;                // of restored(); empty: never taken from args.json
};

// The visitor handed to fields(). Duplicate names are a bug and are reported as such.
class OptionTable {
 public:
  template <class T>
  Option& operator()(const char* name, T& member, const std::string& help) {
    return add(name, OptionTarget(&member), help);
  }
  void group(std::string title) { group_ = std::move(title); }
  // The options of a struct that the described one holds: `v.include(generation)`.
  template <class Options>
  void include(Options& member) {
    member.fields(*this);
  }
  // Flags of other programs without a member here. Several names may share one reason.
  // Any use is an error that says why, but for false, none and the `idle` value: a script may spell a default out.
  void refuse(const std::vector<std::string>& names, const std::string& why, const std::string& idle = "");
  // Accepted with a note: nothing to do here.
  void no_effect(const std::vector<std::string>& names, const std::string& why);
  // One described before, to be refined: a command refuses what it cannot honour.
  Option& at(const std::string& name);

  template <class Options>
  static OptionTable of(Options& options) {
    OptionTable table;
    options.fields(table);
    return table;
  }

  // argv without program and command. A first argument ending in .json/.yaml/.yml is a configuration file; its ENV
  // block is exported without overwriting. All bad options are reported in one Fault::Usage.
  void parse(const std::vector<std::string>& arguments);
  void set(const std::string& name, const Json& value);  // from args.json; unknown names are ignored
  bool given(const std::string& name) const;             // was it set by the user?
  Json json() const;                                     // every option and its value, in order
  // Grouped. Without `word` the common options, or all that act where none is said to be common; with "all" everything,
  // also what is only known: without effect, or not possible; with another word what has it in name or explanation.
  std::string help(int width, const std::string& word = "") const;
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }
  // Those with a property: with(&Option::is_exact), with(&Option::restored_kind, "model").
  std::vector<const Option*> with(bool Option::*property) const;
  std::vector<const Option*> with(std::string Option::*property, const std::string& value) const;
  std::vector<std::string> notes;  // about aliases used, to be shown once
  std::string config_file;         // the first argument when it was one, else empty

 private:
  Option& add(std::string name, OptionTarget target, std::string help);
  Option* find(const std::string& name) const;  // exact, also by alias
  // "; here it is --learning_rate" of what another program calls so; empty: nothing is known.
  std::string elsewhere(std::string name) const;
  // Also by prefix; null: unknown or ambiguous.
  Option* look_up(const std::string& typed, std::vector<std::string>& errors);
  void read_config(const std::string& path, std::vector<std::string>& errors);
  void read_flags(const std::vector<std::string>& arguments, size_t first, std::vector<std::string>& errors);
  void assign(Option& option, const std::vector<std::string>& words, std::vector<std::string>& errors);
  void check_names() const;
  std::vector<std::string> unknown_;  // messages about unknown flags
  std::vector<std::unique_ptr<Option>> options_;
  std::string group_ = "Options";
};

}  // namespace apus
