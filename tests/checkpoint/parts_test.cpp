// SPDX-License-Identifier: Apache-2.0
// Parameters that ranks share out: the parts make up the whole, each rank reads its own, and what is saved from them is
// what one rank would have saved. On a mesh of threads, and once on two processes.
#include "nn/parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <fstream>

#include "checkpoint/adapter.h"
#include "checkpoint/state.h"
#include "models/spec/presets.h"
#include "models/spec/score_head.h"
#include "tests/fake_mesh.h"
#include "tests/folder.h"
#include "tests/golden.h"
#include "tests/rank_body.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using test::Folder;

// A tiny checkpoint of every family, and one whose head is no other name of the table.
std::vector<std::pair<std::string, fs::path>> checkpoints() {
  std::map<std::string, fs::path> of;
  for (const auto& entry : fs::directory_iterator(golden::models())) {
    const fs::path dir = entry.path() / "checkpoint";
    if (!fs::exists(dir / "config.json")) continue;
    const Json config = read_model_config(dir);
    const bool tied = config.value("tie_word_embeddings", false);
    of[config.at("model_type").get<std::string>() + (tied ? ", tied" : "")] = dir;
  }
  return {of.begin(), of.end()};
}

struct Sizes {
  MeshSizes mesh;
  int ranks;
};

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const int tp : {1, 2, 4})
    for (const int shard : {1, 2, 3}) all.push_back({{.dp_shard = shard, .tp = tp}, shard * tp});
  all.push_back({{.ep = 3}, 3});
  all.push_back({{.tp = 2, .ep = 2}, 4});
  return all;
}

std::map<std::string, std::string> files_in(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(dir)) files[entry.path().filename()] = read_file(entry.path());
  return files;
}

void expect_same_files(const fs::path& one, const fs::path& other, const std::string& what) {
  const auto a = files_in(one), b = files_in(other);
  EXPECT_GT(a.size(), 0u) << what;
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, bytes] : a) EXPECT_TRUE(b.count(name) && bytes == b.at(name)) << what << ": " << name;
}

// With the head that its files have.
std::unique_ptr<Model> model_of(const fs::path& dir) {
  const Json config = read_model_config(dir);
  return make_model(config, score_head_of(config) ? Head::Scalar : Head::Vocab);
}

std::unique_ptr<Model> whole_model(const fs::path& dir) {
  auto model = model_of(dir);
  load_weights(*model, TensorFolder(dir), {.dtype = at::kBFloat16});
  return model;
}

std::unique_ptr<Model> placed_model(const fs::path& dir, MeshView& mesh, at::ScalarType dtype = at::kBFloat16) {
  auto model = model_of(dir);
  model->place(mesh);
  load_weights(*model, TensorFolder(dir), {.dtype = dtype});
  return model;
}

// Each element of each parameter lies on as many ranks as the axes that do not cut it have, more where ranks share a
// key-value head, and never on none.
TEST(Parts, OfAllRanksMakeUpTheModel) {
  test::FakeWorld world;
  int cut = 0, held_by_several = 0;
  for (const auto& [name, dir] : checkpoints())
    for (const auto& [sizes, ranks] : all_sizes()) {
      const auto model = model_of(dir);
      std::map<std::string, at::Tensor> held;
      for (int r = 0; r < ranks; ++r) {
        test::FakeMesh mesh(MeshLayout(sizes, ranks, r), world);
        model->place(mesh);
        model->visit([&](const std::string& n, Param& p) {
          if (r == 0) held[n] = at::zeros(p.full, at::kInt);
          at::Tensor mine = own_part(held.at(n), p);
          EXPECT_EQ(mine.sizes(), at::IntArrayRef(p.local_shape()));
          mine.add_(1);
        });
      }
      model->visit([&](const std::string& n, Param& p) {
        int copies = ranks;
        bool shared = false;
        for (const Cut& c : p.cuts) copies /= MeshLayout(sizes, ranks, 0).size(c.axis), shared |= c.shared;
        const int least = held.at(n).min().item<int>(), most = held.at(n).max().item<int>();
        EXPECT_GE(least, copies) << name << " " << n;
        if (!shared) {
          EXPECT_EQ(most, copies) << name << " " << n;
        }
        cut += copies < ranks, held_by_several += shared && most > copies;
      });
      EXPECT_EQ(held.size(), [&] {
        size_t count = 0;
        model_of(dir)->visit([&](const std::string& n, Param&) { count += held.count(n); });
        return count;
      }()) << "names do not depend on the mesh";
    }
  EXPECT_GT(cut, 0);
  EXPECT_GT(held_by_several, 0);
}

// 8 query heads, 2 key-value heads.
TEST(Parts, QueryHeadsStandWhereTheirKeysAre) {
  Json config = preset_config("tiny");
  config["num_attention_heads"] = 8, config["num_key_value_heads"] = 2, config["head_dim"] = 4;
  const auto model = make_model(config);
  test::FakeWorld world;
  for (const int tp : {2, 3, 4, 8})
    for (int r = 0; r < tp; ++r) {
      test::FakeMesh mesh(MeshLayout({.tp = tp}, tp, r), world);
      model->place(mesh);
      std::map<std::string, Range> rows;
      model->visit([&](const std::string& n, Param& p) {
        if (n.starts_with("model.layers.0.self_attn."))
          rows[n.substr(25)] = p.part[n.find("o_proj") < n.size() ? 1 : 0];
      });
      const Range q = rows.at("q_proj.weight"), k = rows.at("k_proj.weight");
      EXPECT_GT(q.size, 0);
      EXPECT_EQ(q.begin % 4 + q.size % 4 + k.begin % 4 + k.size % 4, 0) << "whole heads";
      EXPECT_GE(q.begin / 4 / 4, k.begin / 4) << "four query heads look at one of the keys";
      EXPECT_LE((q.begin + q.size - 1) / 4 / 4, (k.begin + k.size - 1) / 4);
      EXPECT_EQ(q, rows.at("o_proj.weight"));
      EXPECT_EQ(k, rows.at("v_proj.weight"));
    }
}

TEST(Parts, ATiedHeadIsCutAsItsTable) {
  test::FakeWorld world;
  test::FakeMesh mesh(MeshLayout({.dp_shard = 2, .tp = 2}, 4, 3), world);
  const auto model = placed_model(golden::models() / "qwen2/checkpoint", mesh);
  at::Tensor table, head;
  model->visit([&](const std::string& n, Param& p) {
    if (n == "model.embed_tokens.weight") table = p.data;
    if (n == "lm_head.weight") {
      head = p.data;
      EXPECT_EQ(p.data.sizes(), at::IntArrayRef(p.local_shape()));
    }
  });
  EXPECT_TRUE(head.is_same(table));
}

TEST(Parts, SavedTogetherTheyAreTheFilesOfOneRank) {
  for (const auto& [name, dir] : checkpoints()) {
    Folder folder;
    save_weights(*whole_model(dir), folder.path / "one", 100'000, at::kBFloat16);
    for (const auto& [sizes, ranks] : all_sizes()) {
      const std::string what = name + " on " + MeshLayout(sizes, ranks, 0).text();
      fs::remove_all(folder.path / "all");
      test::on_fake_ranks(sizes, ranks, [&, &dir = dir](MeshView& mesh) {
        const auto model = placed_model(dir, mesh);
        save_weights(*model, folder.path / (mesh.layout().first() ? "all" : "none"), 100'000, at::kBFloat16);
      });
      expect_same_files(folder.path / "one", folder.path / "all", what);
      EXPECT_FALSE(fs::exists(folder.path / "none")) << "only the first rank writes";
    }
  }
}

LoraConfig lora_on(std::vector<std::string> modules) {
  LoraConfig config;
  config.r = 5, config.init = "false", config.target_modules = std::move(modules), config.lora_bias = false;
  return config;
}

// Factors are cut as what they change; they begin, are saved and are read again as on one rank.
TEST(Parts, OfAdaptersAreSavedAsOnOneRank) {
  const auto dir = golden::models() / "qwen2/checkpoint";
  LoraConfig config = lora_on({"q_proj", "k_proj", "o_proj", "down_proj", "embed_tokens"});
  config.modules_to_save = {"norm", "lm_head"};
  Folder folder;
  for (const char* to : {"one", "made", "loaded", "resumed"}) fs::create_directory(folder.path / to);
  const auto one = load_model(dir, {});
  save_adapter(*one, make_adapter(*one, config, 7), folder.path / "one", {});
  for (const auto& [sizes, ranks] : all_sizes()) {
    test::on_fake_ranks(sizes, ranks, [&, &sizes = sizes](MeshView& mesh) {
      const auto model = placed_model(dir, mesh, at::kFloat);
      const Adapter adapter = make_adapter(*model, config, 7);
      model->visit([&](const std::string& n, Param& p) {
        if (n == "model.layers.0.self_attn.o_proj.default.lora_A.weight") {
          EXPECT_EQ(p.part[1], part_of(p.full[1], {Axis::Tp, 1, 2, 2}, mesh.rank(Axis::Tp), sizes.tp)) << n;
        }
      });
      save_adapter(*model, adapter, folder.path / "made", {});
      const auto second = placed_model(dir, mesh, at::kFloat);
      const Adapter loaded = load_adapter(*second, folder.path / "one");
      save_adapter(*second, loaded, folder.path / "loaded", {});
      const auto third = placed_model(dir, mesh, at::kFloat);
      Adapter resumed = make_adapter(*third, config, 8);
      restore_adapter(*third, resumed, folder.path / "one");
      save_adapter(*third, resumed, folder.path / "resumed", {});
    });
    const std::string what = MeshLayout(sizes, ranks, 0).text();
    for (const char* from : {"made", "loaded", "resumed"})
      EXPECT_EQ(read_file(folder.path / from / "adapter_model.safetensors"),
                read_file(folder.path / "one/adapter_model.safetensors"))
          << from << " on " << what;
  }
}

TEST(Parts, FactorsThatNeedTheWholeWeightAreRefused) {
  test::FakeWorld world;
  test::FakeMesh mesh(MeshLayout({.tp = 2}, 2, 0), world);
  const auto dir = golden::models() / "qwen2/checkpoint";
  LoraConfig pissa = lora_on({"q_proj"});
  pissa.init = "pissa";
  const auto model = placed_model(dir, mesh);
  test::expect_says(test::refusal(Fault::Usage, [&] { make_adapter(*model, pissa, 1); }), "changes all of it");
}

// The lengths of a weight's rows that DoRA begins with are those of the whole, whoever holds which rows.
TEST(Parts, DoraBeginsAsOnOneRank) {
  const auto dir = golden::models() / "qwen2/checkpoint";
  LoraConfig dora = lora_on({"q_proj", "o_proj"});
  dora.dora = true, dora.init = "true";
  const auto one = load_model(dir, {});
  make_adapter(*one, dora, 1);
  std::map<std::string, at::Tensor> whole;
  one->visit([&](const std::string& n, Param& p) { whole[n] = p.data; });
  test::on_fake_ranks({.dp_shard = 3}, 3, [&](MeshView& mesh) {
    const auto model = placed_model(dir, mesh, at::kFloat);
    make_adapter(*model, dora, 1);
    model->visit(
        [&](const std::string& n, Param& p) { EXPECT_TRUE(at::equal(p.data, own_part(whole.at(n), p))) << n; });
  });
}

// A state that so many ranks saved is that of any other number of ranks; blocks of 8-bit moments cannot be divided.
TEST(Parts, OfAnOptimizersStateAreThoseOfAnyRanks) {
  const std::map<std::string, at::Tensor> whole = {{"w/exp_avg", at::rand({7, 3})}, {"b/exp_avg", at::rand({2})}};
  const auto cut = [&](const RunState& from, int ranks) {
    RunState to;
    for (int r = 0; r < ranks; ++r) to.optimizer_slices.push_back(state_slice(from, r, ranks));
    return to;
  };
  RunState state;
  state.optimizer_slices = {whole};
  for (const int ranks : {1, 2, 4, 3, 9, 2, 1}) {
    state = cut(state, ranks);
    at::Tensor joined = at::cat([&] {
      std::vector<at::Tensor> rows;
      for (const auto& slice : state.optimizer_slices) rows.push_back(slice.at("w/exp_avg"));
      return rows;
    }());
    EXPECT_TRUE(at::equal(joined, whole.at("w/exp_avg"))) << ranks;
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(state.optimizer_slices[static_cast<size_t>(r)].at("w/exp_avg").size(0), part_of(7, r, ranks).size);
  }
  EXPECT_TRUE(at::equal(state.optimizer_slices[0].at("b/exp_avg"), whole.at("b/exp_avg")));
  for (const char* narrow : {"adamw_8bit", "adamw_4bit"}) {
    state.optimizer = narrow;
    test::expect_says(test::refusal(Fault::Usage, [&] { state_slice(state, 0, 2); }), "as many ranks");
  }
}

// The second half of a table is cut off after the file was opened: to touch it would be a bus error.
TEST(Parts, NothingButTheOwnPartIsRead) {
  Json config = preset_config("tiny");
  config["vocab_size"] = 16384, config["tie_word_embeddings"] = true;
  Folder folder;
  std::ofstream(folder.path / "config.json") << config.dump();
  const auto model = make_model(config);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::pair<std::string, at::Tensor> table;
  for (const DiskShape& t : disk_shapes(*model)) {
    std::pair<std::string, at::Tensor> tensor(t.name, at::zeros(t.shape, at::kBFloat16));
    t.shape[0] == 16384 ? void(table = tensor) : tensors.push_back(tensor);
  }
  tensors.push_back(table);  // the last in the file
  const fs::path file = folder.path / "model.safetensors";
  write_safetensors(file, tensors);

  const TensorFolder source(folder.path);
  const auto half = static_cast<int64_t>(table.second.nbytes() / 2);
  ASSERT_EQ(::truncate(file.c_str(), static_cast<off_t>(fs::file_size(file)) - half + 4096), 0);
  test::FakeWorld world;
  test::FakeMesh mesh(MeshLayout({.tp = 2}, 2, 0), world);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const auto mine = make_model(config);
    mine->place(mesh);
    load_weights(*mine, source, {.dtype = dtype});
    mine->visit([&](const std::string& n, Param& p) {
      if (n == "model.embed_tokens.weight") {
        EXPECT_EQ(p.data.sum().item<float>(), 0);
      }
    });
  }
}

const test::RankBody body("parts.saved", [](const std::vector<std::string>& arguments) {
  World world({.device = "cpu", .timeout_s = 60});
  Mesh mesh(world, {.tp = 2});
  const auto model = placed_model(golden::models() / "qwen2/checkpoint", mesh);
  model->visit([&](const std::string& n, Param& p) {
    if (n.ends_with("embed_tokens.weight")) {
      EXPECT_EQ(p.data.size(0), p.full[0] / 2);
    }
  });
  save_weights(*model, arguments[0], int64_t{1} << 30, at::kBFloat16);
  world.host().barrier();
});

TEST(Parts, OfTwoProcessesAreSavedAsOnOneRank) {
  Folder folder;
  const test::Ranks r = test::run_ranks(2, "parts.saved", {(folder.path / "two").string()});
  EXPECT_EQ(r.code, 0) << r.said;
  save_weights(*load_model(golden::models() / "qwen2/checkpoint", {.dtype = at::kBFloat16}), folder.path / "one",
               int64_t{1} << 30, at::kBFloat16);
  expect_same_files(folder.path / "one", folder.path / "two", "two processes");
}

}  // namespace
}  // namespace apus
