# SPDX-License-Identifier: Apache-2.0
"""A plugin as ms-swift has them: a reward, and an environment that asks again until it is told of whom it asked."""
import re

from swift.plugin import ORM, orms
from swift.rollout.gym_env import Env, envs


def names_in(text):
    return set(re.findall(r'\b[A-Z][a-z]+\b', text)) - {'The', 'What', 'Where', 'Who', 'Which', 'Whose', 'How'}


class Names(ORM):
    """The share of the question's names that are said, and half of one for a sentence that ends."""

    def __call__(self, completions, messages, **kwargs):
        rewards = []
        for said, conversation in zip(completions, messages):
            wanted = names_in(conversation[0]['content'])
            rewards.append(len(wanted & names_in(said)) / max(1, len(wanted)) + said.strip().endswith('.') / 2)
        return rewards


class Listener(Env):

    async def reset(self, config):
        self.wanted = names_in(config.messages[-1]['content'])
        return config.messages[-1]['content'], {}, None

    async def step(self, action):
        heard = self.wanted <= names_in(action[-1]['content'])
        return f'I asked of {" and ".join(sorted(self.wanted))}.', float(heard), heard, {}


orms['names'] = Names
envs['listener'] = Listener
