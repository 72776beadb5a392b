// SPDX-License-Identifier: Apache-2.0
// Rewards of plugins that are written as ms-swift has them: what they are given, and what is said when they fail.
#include "reward/plugins.h"

#include <chrono>
#include <cmath>

#include "environment/plugin.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "tests/reward/plugin.h"

namespace apus {
namespace {

using test::expect_says;
using test::refusal;

constexpr const char* kPlugin = R"(
import asyncio
import torch  # ms-swift has it; here only its use would fail
from swift.rewards import ORM, AsyncORM, orms, rm_plugins
from swift.rewards.orm import MathAccuracy
from swift.rewards.rm_plugin import DefaultRMPlugin
from swift.template import Template
from swift.utils import get_logger

print('imported')
class Contains(ORM):
    def __call__(self, completions, solution, **kwargs):
        print('called', get_logger().name)
        return [1.0 if s in c else None for c, s in zip(completions, solution)]
class State(ORM):
    def __call__(self, completions, trainer_state, messages, response_token_ids, finish_reason, **kwargs):
        self.calls = getattr(self, 'calls', 0) + 1
        assert [m[-1]['content'] for m in messages] == completions and messages[0][0]['role'] == 'user'
        return [self.calls * 1000 + trainer_state.global_step * 10 + len(ids) + (f == 'length') / 2
                for ids, f in zip(response_token_ids, finish_reason)]
class Later(AsyncORM):
    async def __call__(self, completions, **kwargs):
        await asyncio.sleep(0.001)
        return [float(len(c)) for c in completions]
class Right(ORM):
    def __init__(self, args=None, **kwargs):
        super().__init__(args)
        self.right, self.most = MathAccuracy(), args.max_completion_length
    def __call__(self, completions, solution, **kwargs):
        return [2 * r + self.most for r in self.right(completions, solution)]
class Judge(DefaultRMPlugin):
    def __init__(self, model, template: Template):
        self.model: torch.nn.Module = model
orms.update(contains=Contains, state=State, later=Later, right=Right, format=Contains)
rm_plugins['judge'] = Judge
)";

class PluginRewards : public test::PluginTest {
 protected:
  std::vector<double> scores(const PluginOptions& plugins, const std::string& name, RewardOptions o = {},
                             const std::vector<std::string>& texts = {"it is 4", "no"}) {
    std::vector<RewardInput> answers;
    for (const std::string& text : texts)
      answers.push_back({.completion = text, .tokens = {1, 2, 3}, .cut = text == "no", .row = &row, .step = 7});
    o.reward_funcs = {name};
    if (!running) running = plugins_of(plugins, {{"max_completion_length", 16}}, nullptr);
    return Rewards(o, running).score(answers).functions.at(0);
  }
  // A reward of this body, and what is said of it.
  std::string fault(const std::string& body, RewardOptions o = {}, const std::string& head = "") {
    running = nullptr;
    const PluginOptions plugins =
        written("from swift.plugin import ORM, orms\n" + head + "\nclass Bad(ORM):\n" + body + "\norms['bad'] = Bad\n");
    return refusal(Fault::Data, [&] { scores(plugins, "bad", o); });
  }
  const Json row = {{"messages", {{{"role", "user"}, {"content", "2 + 2?"}}}}, {"solution", "4"}};
  std::shared_ptr<Plugins> running;
};

TEST_F(PluginRewards, ProcessRewardModels) {
  const PluginOptions o = written(R"(
from swift.rewards import PRM, prms
class Steps(PRM):
    def __call__(self, infer_requests, ground_truths, **kwargs):
        assert all(r.messages[0]['role'] == 'user' for r in infer_requests)
        return [[1.0, 0.5] if r.messages[-1]['content'].endswith(g) else 0.0
                for r, g in zip(infer_requests, ground_truths)]
prms['steps'] = Steps
)");
  const auto plugins = plugins_of(o, Json::object(), nullptr);
  EXPECT_TRUE(plugins->has("prms", "steps"));
  PluginReward prm("steps", plugins, {}, "prm");
  EXPECT_EQ(prm.score({{.completion = "it is 4", .row = &row}, {.completion = "no", .row = &row}}),
            (std::vector<double>{0.5, 0}));
}

TEST_F(PluginRewards, AreGivenWhatTheyExpect) {
  const PluginOptions o = written(kPlugin);
  const std::vector<double> contains = scores(o, "contains");
  EXPECT_EQ(contains[0], 1);
  EXPECT_TRUE(std::isnan(contains[1])) << "None is no opinion";
  EXPECT_EQ(scores(o, "state"), (std::vector<double>{1073, 1073.5}));
  EXPECT_EQ(scores(o, "state"), (std::vector<double>{2073, 2073.5})) << "one process: an object remembers";
  EXPECT_EQ(scores(o, "later"), (std::vector<double>{7, 2}));
  EXPECT_EQ(scores(o, "right", {}, {"\\boxed{4}", "\\boxed{5}"}), (std::vector<double>{18, 16}));
  EXPECT_EQ(scores(o, "format")[0], 1) << "a plugin's own comes before the program's";
  EXPECT_EQ(scores(o, "length", {}, {"a"}).size(), 1u) << "the program's own are there as well";
}

TEST_F(PluginRewards, AreReadFromSeveralFilesAndFolders) {
  PluginOptions o = written(
      "from swift.plugin import orms, ORM\nfrom helper import worth\n"
      "class A(ORM):\n    def __call__(self, completions, **kw): return [worth] * len(completions)\n"
      "orms['a'] = A\n",
      "a.py");
  written("worth = 3\n", "helper.py");
  EXPECT_EQ(scores(o, "a")[0], 3);
  running = nullptr;
  o.external_plugins = {folder.path.string()};
  EXPECT_EQ(scores(o, "a")[0], 3);
}

TEST_F(PluginRewards, ThatFailAreNamedWithTheirLine) {
  const std::string head = (folder.path / "plugin.py").string();
  expect_says(fault("    def __call__(self, completions, **kw):\n        return 1 / 0"),
              head + ":5: ZeroDivisionError: division by zero");
  expect_says(fault("    def __call__(self, completions, target, **kw): pass"), head + ":4: TypeError");
  expect_says(fault("    def __call__(self, completions, target, **kw): pass"), "solution");
  expect_says(fault("    def __call__(self, completions, **kw): return [1]"), "gave 1 numbers for 2 answers");
  expect_says(fault("    def __call__(self, completions, **kw): return ['x', 1]"), "is no list of numbers");
  expect_says(fault("    def __call__(self, completions, **kw): pass"), "is no list of numbers");
  expect_says(fault("    def __call__(self, completions, **kw): return [float('inf')] * 2"), "gave an infinite number");
  expect_says(fault("    def __init__(self, args): self.x = args.no_such_setting"), "max_completion_length");
  expect_says(fault("    pass", {}, "import no_such_module"), head + ":2: ModuleNotFoundError");
  expect_says(fault("    pass", {}, "x = ("), head + ":2: SyntaxError");
  expect_says(fault("    def __call__(self, completions, **kw):\n        import os; os.write(2, b'gone'); os._exit(3)"),
              "ended with code 3; it said: ");
  expect_says(fault("    def __call__(self, completions, **kw):\n"
                    "        from swift.infer_engine import TransformersEngine\n        TransformersEngine()"),
              "swift.infer_engine.TransformersEngine is not there");
}

TEST_F(PluginRewards, ThatHangAreBoundedAndMayBePassedOver) {
  RewardOptions o;
  o.reward_timeout = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  const std::string body = "    def __call__(self, completions, **kw):\n        import time; time.sleep(100)";
  expect_says(fault(body, o), "gave no reply in 0.3 s (--reward_timeout)");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  o.reward_failure = "skip";
  const PluginOptions hangs = written("from swift.plugin import ORM, orms\nclass Bad(ORM):\n" + body +
                                      "\nclass Good(ORM):\n    def __call__(self, completions, **kw): return [1, 2]\n"
                                      "orms.update(bad=Bad, good=Good)\n");
  running = nullptr;
  EXPECT_TRUE(std::isnan(scores(hangs, "bad", o)[0]));
  EXPECT_EQ(scores(hangs, "good"), (std::vector<double>{1, 2})) << "it is started anew";
}

TEST_F(PluginRewards, ThatPrintReadAndStartProgramsDisturbNobody) {
  const PluginOptions o = written(R"(
import subprocess, sys
from swift.plugin import ORM, orms
class Loud(ORM):
    def __call__(self, completions, **kw):
        print('{"rewards": [9, 9]}', flush=True)
        assert sys.stdin.read() == '' and subprocess.run(['cat'], capture_output=True).stdout == b''
        subprocess.run(['echo', '{"rewards": [9, 9]}'])
        return [1, 2]
orms['loud'] = Loud
)");
  EXPECT_EQ(scores(o, "loud"), (std::vector<double>{1, 2}));
}

TEST_F(PluginRewards, ThatNobodyRegistersAreRefusedBeforeARun) {
  PluginOptions o = written(kPlugin);
  check_plugins(o, {"contains", "accuracy", "external:./judge"}, nullptr);
  expect_says(refusal(Fault::Usage, [&] { check_plugins(o, {"contians"}, nullptr); }), "contains, state, later");
  o.python = "no-such-python";
  expect_says(refusal(Fault::Usage, [&] { check_plugins(o, {}, nullptr); }), "--python PATH");
  o.external_plugins = {"no-such-file.py"};
  expect_says(refusal(Fault::Usage, [&] { check_plugins(o, {}, nullptr); }), "no-such-file.py is not there");
}

TEST_F(PluginRewards, MayAskForTheTokenizer) {
  const PluginOptions o = written(R"(
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns
from swift.rewards import ORM, orms
class Tokens(ORM):
    def __call__(self, completions, **kw):
        from __main__ import Tokenizer
        t = Tokenizer()
        assert t.decode(t.encode(completions[0], add_special_tokens=False)) == completions[0]
        return [float(len(t.encode(c))) for c in completions]
orms['tokens'] = Tokens
)");
  const auto tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer");
  running = plugins_of(o, Json::object(), tokenizer);
  EXPECT_EQ(scores(o, "tokens"), (std::vector<double>{static_cast<double>(tokenizer->encode("it is 4", true).size()),
                                                      static_cast<double>(tokenizer->encode("no", true).size())}));
}

}  // namespace
}  // namespace apus
