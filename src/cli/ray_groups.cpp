// SPDX-License-Identifier: Apache-2.0
#include "cli/ray_groups.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/assets.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "base/signals.h"
#include "cli/megatron.h"
#include "serve/child_server.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

constexpr const char* kRestarts = "max_restarts";  // the driver's
const std::set<std::string> kRoles = {"train", "rollout", "teacher"};

Words words_of(const Json& value) {
  Words all;
  for (const Json& each : value.is_array() ? value : Json::array({value}))
    all.push_back(each.is_string() ? each.get<std::string>() : each.dump());
  return all;
}

void add(Words& arguments, const std::string& key, const Words& words) {
  arguments.push_back("--" + key);
  arguments.insert(arguments.end(), words.begin(), words.end());
}

// The entries of a role's block but those that say how many devices it has.
void add_block(Words& arguments, const Json& block, const std::set<std::string>& but = {"gpus"}) {
  for (const auto& [key, value] : block.items())
    if (!but.count(key) && !value.is_null()) add(arguments, key, words_of(value));
}

int64_t number_in(const Json& block, const char* key, int64_t otherwise, const std::string& where) {
  if (!block.contains(key)) return otherwise;
  const Json& value = block[key];
  require(value.is_number_integer() && value.get<int64_t>() > 0, Fault::Usage, where, ": '", key,
          "' must be a number above 0, it is ", value.dump());
  return value.get<int64_t>();
}

class Blocks {
 public:
  Blocks(const ConfigFile& file, const std::string& path) : path_(path) {
    for (ConfigEntry entry : file.entries) {
      fill_in_environment(entry, path);
      if (kRoles.count(entry.key)) {
        require(entry.value.is_object(), Fault::Usage, path, ": '", entry.key, "' must be a block with 'gpus'");
        of_role_[entry.key] = entry.value;
      } else if (entry.key == "colocate_groups") {
        together_ = entry.value;
      } else if (entry.key == kRestarts) {
        restarts_ = entry.value;
      } else if (entry.value.is_object()) {
        add(shared_, entry.key, {entry.value.dump()});
      } else {
        add(shared_, entry.key, entry.words);
      }
    }
  }
  const Words& shared() const { return shared_; }
  bool has(const std::string& role) const { return of_role_.count(role) > 0; }
  const Json& of(const std::string& role) const { return of_role_.at(role); }
  std::string where(const std::string& role) const { return str(path_, ", block ", role); }
  int64_t devices(const std::string& role) const {
    require(of(role).contains("gpus"), Fault::Usage, where(role), " lacks 'gpus', how many devices it has");
    return number_in(of(role), "gpus", 1, where(role));
  }
  // How often the trainer is started again.
  int64_t restarts() const {
    const Json& train = of("train");
    const Json& said = train.contains(kRestarts) ? train[kRestarts] : restarts_;
    require(said.is_null() || (said.is_number_integer() && said.get<int64_t>() >= 0), Fault::Usage, path_, ": '",
            kRestarts, "' must be a number, 0 or more");
    return said.is_null() ? 0 : said.get<int64_t>();
  }
  // Whether the role works on the trainer's devices, in turn with it.
  bool beside_trainer(const std::string& role) const {
    for (const Json& group : together_.is_array() ? together_ : Json::array()) {
      const Words names = words_of(group);
      const auto in = [&](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
      };
      if (in("train") && in(role)) return true;
    }
    return false;
  }

 private:
  std::string path_;
  Words shared_;
  Json together_, restarts_;
  std::map<std::string, Json> of_role_;
};

// Servers that roll out, or the flags of an engine on the trainer's devices.
void place_rollout(const Blocks& blocks, const std::string& model, RayGroups& out) {
  if (!blocks.has("rollout")) return;
  const Json& block = blocks.of("rollout");
  const int64_t devices = blocks.devices("rollout");
  if (blocks.beside_trainer("rollout")) {
    require(devices == out.trainer.devices, Fault::Usage, blocks.where("rollout"), ": colocate_groups puts it on the ",
            out.trainer.devices, " devices of train, and 'gpus' says ", devices, ": give the same number");
    add(out.trainer.arguments, "vllm_mode", {"colocate"});
    return add_block(out.trainer.arguments, block);
  }
  const int64_t each = number_in(block, "vllm_tensor_parallel_size", 1, blocks.where("rollout"));
  require(devices % each == 0, Fault::Usage, blocks.where("rollout"), ": ", devices, " devices are no multiple of the ",
          each, " of --vllm_tensor_parallel_size");
  RayGroup server{.role = "rollout",
                  .arguments = {"rollout", "--model", model},
                  .copies = devices / each,
                  .devices = each,
                  .address_flag = "--vllm_server_base_url"};
  add_block(server.arguments, block);
  add(out.trainer.arguments, "vllm_mode", {"server"});
  out.servers.push_back(std::move(server));
}

// One server with a copy of the teacher on each of its devices, or on so many together.
void place_teacher(const Blocks& blocks, RayGroups& out) {
  if (!blocks.has("teacher")) return;
  const Json& block = blocks.of("teacher");
  const std::string where = blocks.where("teacher");
  require(block.contains("model") && block["model"].is_string(), Fault::Usage, where,
          " lacks 'model', which its server gives");
  require(!blocks.beside_trainer("teacher"), Fault::Usage, where,
          ": a teacher on the trainer's devices is --teacher_model: write teacher_model: ", block["model"].dump(),
          " above the blocks, and leave this one out");
  const int64_t devices = blocks.devices("teacher"), each = number_in(block, "vllm_tensor_parallel_size", 1, where);
  require(devices % each == 0, Fault::Usage, where, ": ", devices, " devices are no multiple of the ", each,
          " of --vllm_tensor_parallel_size");
  RayGroup server{.role = "teacher",
                  .arguments = {"deploy", "--model", block["model"]},
                  .devices = devices,
                  .address_flag = "--teacher_model_server"};
  if (each > 1) add(server.arguments, "tensor_model_parallel_size", {str(each)});
  if (devices > each) add(server.arguments, "data_parallel_size", {str(devices / each)});
  add_block(server.arguments, block, {"gpus", "model", "vllm_tensor_parallel_size", "vllm_engine_kwargs"});
  out.servers.push_back(std::move(server));
}

}  // namespace

RayGroups ray_groups(const ConfigFile& file, const std::string& path, const Words& further) {
  const Blocks blocks(file, path);
  require(blocks.has("train"), Fault::Usage, path,
          ": --use_ray true wants a block 'train' with 'gpus', and one "
          "'rollout': see docs/rollout.md");
  RayGroups out;
  out.trainer = {.role = "train", .arguments = {"megatron", "rlhf"}, .devices = blocks.devices("train")};
  Words& arguments = out.trainer.arguments;
  arguments.insert(arguments.end(), blocks.shared().begin(), blocks.shared().end());
  add_block(arguments, blocks.of("train"), {"gpus", kRestarts});
  Words known = arguments;
  known.insert(known.end(), further.begin(), further.end());
  const std::string model = value_of(known, "model"), restarts = value_of(further, kRestarts);
  require(!model.empty(), Fault::Usage, path, " names no model");
  out.output = value_of(known, "output_dir");
  out.restarts = restarts.empty() ? blocks.restarts() : std::strtoll(restarts.c_str(), nullptr, 10);
  place_rollout(blocks, model, out), place_teacher(blocks, out);
  for (const MegatronFlag& flag : megatron_flags(further))
    if (flag.name != "use_ray" && flag.name != "config" && flag.name != kRestarts)
      add(arguments, flag.name, flag.values);
  return out;
}

Json ray_plan(const RayGroups& groups, const std::string& program, const std::string& directory,
              const ConfigFile& file) {
  const auto told = [](const RayGroup& group) {
    return Json{{"role", group.role},
                {"arguments", group.arguments},
                {"copies", group.copies},
                {"devices", group.devices},
                {"address_flag", group.address_flag}};
  };
  Json servers = Json::array(), environment = Json::object();
  for (const RayGroup& each : groups.servers) servers.push_back(told(each));
  for (const auto& [name, value] : file.environment) environment[name] = value;
  return {{"program", program},     {"directory", directory},          {"environment", environment},
          {"servers", servers},     {"trainer", told(groups.trainer)}, {"restarts", groups.restarts},
          {"output", groups.output}};
}

int run_on_ray(const Json& plan) {
  using namespace std::chrono_literals;
  const char* asked = std::getenv("APUS_PYTHON");
  const std::string python = asked ? asked : "python3";
  const StopFlag stop;
  const auto code_of = [&](ChildServer& child) {
    while (true) {
      if (const auto how = child.ended())
        return how->starts_with("exit code ") ? std::stoi(how->substr(10)) : 128 + std::stoi(how->substr(7));
      if (stop.raised()) child.ask_to_end();
      std::this_thread::sleep_for(100ms);
    }
  };
  ChildServer tried({.words = {python, "-c", "import ray"}, .output = "/dev/null"});
  require(
      code_of(tried) == 0, Fault::Usage, "--use_ray true needs Python with Ray, and `", python,
      " -c 'import ray'` failed: pip install ray, or name another Python as APUS_PYTHON. Without Ray one machine runs "
      "the same: leave out --use_ray, and start the servers by apus rollout");
  const fs::path folder = fs::temp_directory_path() / str("apus-ray-", ::getpid());
  fs::create_directories(folder);
  write_file_atomic(folder / "driver.py", std::string(asset("ray/driver.py")));
  write_file_atomic(folder / "plan.json", plan.dump(2) + "\n");
  ChildServer driver({.words = {python, (folder / "driver.py").string(), (folder / "plan.json").string()}});
  const int code = code_of(driver);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return code;
}

}  // namespace apus
