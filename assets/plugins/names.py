# SPDX-License-Identifier: Apache-2.0
# What plugins written for ms-swift import, as far as it makes sense outside of ms-swift: base classes, registries,
# and the objects that environments and schedulers are handed. runner.py comes behind this text, in the same file.
import asyncio
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import logging
import os
import sys
import threading
import traceback
import types
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

ASKING = threading.Lock()
QUESTIONS = os.fdopen(os.dup(0), 'r', encoding='utf-8')
REPLIES = os.fdopen(os.dup(1), 'w', encoding='utf-8')


def say(line):
    REPLIES.write(json.dumps(line) + '\n')
    REPLIES.flush()


def ask(question, **details):
    """Asks the program that trains, which knows the tokenizer and has rewards of its own."""
    with ASKING:
        say({'ask': question, **details})
        answer = json.loads(QUESTIONS.readline())
    if 'refused' in answer:
        raise RuntimeError(answer['refused'])
    return answer['answer']


class AbsentKind(type):

    def __getattr__(cls, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return absent(f'{cls.full_name}.{name}')


def absent(name):
    """A class that may be imported, named and derived from, and says at its first use that it is not there."""
    whose = name.split('.')[0]
    reason = (f'{name} is not there: plugins run outside of ms-swift here, see docs/plugins.md for what they may use'
              if whose == 'swift' else f'{name} is not there: install {whose} for {sys.executable}, '
              'or name another Python with --python')

    def refuse(self, *args, **kwargs):
        raise RuntimeError(reason)

    return AbsentKind(name.rsplit('.', 1)[-1], (), {'full_name': name, '__new__': refuse})


class ORM:

    def __init__(self, args=None, **kwargs):
        self.args = args

    def __call__(self, completions, **kwargs):
        raise NotImplementedError(f'{type(self).__name__} has no __call__')


class AsyncORM(ORM):

    async def __call__(self, completions, **kwargs):
        raise NotImplementedError(f'{type(self).__name__} has no __call__')


class PRM(ORM):
    pass


def of_program(name):
    """A reward that is part of the program that trains."""

    def call(self, completions, *columns, **kwargs):
        if columns:
            kwargs['solution'] = columns[0]
        rows = {key: kwargs[key] for key in ('solution', 'response_token_ids', 'is_truncated') if key in kwargs}
        return ask('reward', name=name, completions=list(completions), columns=rows)

    return type(name, (ORM, ), {'__call__': call})


BUILT_IN = {name: of_program(name) for name in BUILT_IN_REWARDS}
orms, prms, rm_plugins, envs = dict(BUILT_IN), {}, {}, {}


@dataclass
class InferRequest:
    messages: List[Dict[str, Any]]
    images: List[Any] = field(default_factory=list)
    audios: List[Any] = field(default_factory=list)
    videos: List[Any] = field(default_factory=list)
    tools: Optional[List[Any]] = None
    objects: Dict[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Dict[str, Any] = field(default_factory=dict)


@dataclass
class RolloutInferRequest(InferRequest):
    data_dict: Dict[str, Any] = field(default_factory=dict)
    uuid: Optional[str] = None


@dataclass
class ChatMessage:
    content: str
    role: str = 'assistant'
    tool_calls: Optional[List[Any]] = None


@dataclass
class ChatCompletionResponseChoice:
    message: ChatMessage
    finish_reason: Optional[str] = None
    index: int = 0
    logprobs: Optional[Dict[str, Any]] = None
    token_ids: Optional[List[int]] = None


class Tokenizer:
    """The tokenizer of the model that is trained."""

    def encode(self, text, add_special_tokens=True, **kwargs):
        return ask('encode', text=text, special=bool(add_special_tokens))

    def decode(self, token_ids, skip_special_tokens=False, **kwargs):
        return ask('decode', ids=[int(i) for i in token_ids], skip=bool(skip_special_tokens))

    def __getattr__(self, name):
        raise AttributeError(f'tokenizer.{name} is not there: plugins may encode and decode')


class RolloutScheduler:

    def __init__(self, infer_engine=None, max_turns=None, *args, **kwargs):
        self.infer_engine, self.max_turns = infer_engine, max_turns
        self._tokenizer = kwargs.get('tokenizer')

    @property
    def tokenizer(self):
        return self._tokenizer

    async def on_trajectory_start(self, requests):
        pass

    async def on_turn_end(self, infer_request, response_choice, current_turn):
        return {}

    def check_finished(self, infer_request, response_choice, current_turn):
        at_end = bool(self.max_turns) and current_turn >= self.max_turns
        return at_end or response_choice.finish_reason == 'length'


class MultiTurnScheduler(RolloutScheduler):

    async def run(self, infer_request, request_config, **kwargs):
        raise NotImplementedError('turns are taken by the program that trains')

    def step(self, infer_request, response_choice, current_turn):
        raise NotImplementedError(f'{type(self).__name__} has no step()')

    @staticmethod
    def _extract_logprobs_from_choice(response_choice):
        return []


class Env:

    def __init__(self, env_config):
        self.env_config = env_config

    async def close(self):
        pass


class GYMScheduler(MultiTurnScheduler):
    """An environment of `envs` for each trajectory."""

    def __init__(self, infer_engine=None, max_turns=None, *args, **kwargs):
        super().__init__(infer_engine, max_turns, *args, **kwargs)
        self.gym_env_name = kwargs.get('gym_env')
        self._envs, self._total_rewards, self._step_rewards, self._pending_obs = {}, {}, {}, {}

    def _create_env(self, env_config):
        name = env_config.get('name', self.gym_env_name)
        if name not in envs:
            raise ValueError(f"no environment is named '{name}'; the plugins have {', '.join(envs) or 'none'}")
        return envs[name](env_config)

    async def _close_and_remove(self, uuid):
        env = self._envs.pop(uuid, None)
        if env is not None:
            with contextlib.suppress(Exception):
                await finished(env.close())
        for state in (self._total_rewards, self._step_rewards, self._pending_obs):
            state.pop(uuid, None)

    def _opened(self, request, env, system, observation):
        request.messages = [{'role': 'system', 'content': system}] if system else []
        request.messages.append({'role': 'user', 'content': observation})
        self._envs[request.uuid], self._total_rewards[request.uuid] = env, 0.0
        self._step_rewards[request.uuid], self._pending_obs[request.uuid] = [], None

    async def _stepped(self, uuid, observation, reward, done):
        self._total_rewards[uuid] += float(reward)
        self._step_rewards[uuid].append(float(reward))
        self._pending_obs[uuid] = None if done else observation
        infos = {'total_reward': self._total_rewards[uuid], 'step_rewards': list(self._step_rewards[uuid]),
                 'gym_done': bool(done)}
        if done:
            await self._close_and_remove(uuid)
        return {'done': bool(done), 'rollout_infos': infos}

    async def on_trajectory_start(self, requests):

        async def begin(request):
            await self._close_and_remove(request.uuid)
            env = self._create_env(request.data_dict.get('env_config') or {})
            observation, _, system = await finished(env.reset(request))
            self._opened(request, env, system, observation)

        await asyncio.gather(*[begin(request) for request in requests])

    async def on_turn_end(self, infer_request, response_choice, current_turn):
        env = self._envs.get(infer_request.uuid)
        if env is None:
            return {'done': True, 'rollout_infos': {}}
        observation, reward, done, _ = await finished(env.step(deepcopy(infer_request.messages)))
        return await self._stepped(infer_request.uuid, observation, reward, done)

    def step(self, infer_request, response_choice, current_turn):
        observation = self._pending_obs.get(infer_request.uuid)
        if observation is not None:
            infer_request.messages.append({'role': 'user', 'content': observation})
            self._pending_obs[infer_request.uuid] = None
        return {'infer_request': infer_request}


class OpenEnvWrapper:
    """A session with an OpenEnv server; the package openenv speaks to it."""

    def __init__(self, env_config):
        self.base_url = env_config.get('base_url', 'http://localhost:8000')
        self.reset_kwargs = env_config.get('reset_kwargs') or {}
        self._client = None

    def _connected(self):
        if self._client is None:
            from openenv.core.generic_client import GenericEnvClient
            self._client = GenericEnvClient(base_url=self.base_url).sync()
            self._client.__enter__()
        return self._client

    def reset(self):
        result = self._connected().reset(**self.reset_kwargs)
        return result.observation, getattr(result, 'metadata', None)

    def step(self, action):
        result = self._connected().step(action)
        return result.observation, float(result.reward or 0), bool(result.done), getattr(result, 'metadata', None)

    def close(self):
        if self._client is not None:
            self._client.__exit__(None, None, None)
            self._client = None


class OpenEnvScheduler(GYMScheduler):

    def _create_env(self, env_config):
        return OpenEnvWrapper(env_config)

    async def _close_and_remove(self, uuid):
        env = self._envs.get(uuid)
        if env is not None:
            self._envs[uuid] = types.SimpleNamespace(close=lambda: asyncio.to_thread(env.close))
        await super()._close_and_remove(uuid)

    async def on_trajectory_start(self, requests):
        limit = asyncio.Semaphore(getattr(self, 'max_concurrent_envs', 4))

        async def begin(request):
            async with limit:
                await self._close_and_remove(request.uuid)
                config = {**getattr(self, 'env_config_defaults', {}), **(request.data_dict.get('env_config') or {})}
                env = self._create_env(config)
                observation, _ = await asyncio.to_thread(env.reset)
                self._opened(request, env, config.get('system_message', ''), self.format_observation(observation))

        await asyncio.gather(*[begin(request) for request in requests])

    async def on_turn_end(self, infer_request, response_choice, current_turn):
        env = self._envs.get(infer_request.uuid)
        if env is None:
            return {'done': True, 'rollout_infos': {}}
        action = self.parse_action(response_choice.message.content)
        observation, reward, done, _ = await asyncio.to_thread(env.step, action)
        shown = None if done else self.format_observation(observation)
        return await self._stepped(infer_request.uuid, shown, reward, done)

    def parse_action(self, text):
        text = text.strip()
        lines = text.splitlines()
        if len(lines) > 1 and lines[0].startswith('```') and lines[-1].strip() == '```':
            text = '\n'.join(lines[1:-1])
        try:
            action = json.loads(text)
        except ValueError:
            action = text
        return action if isinstance(action, dict) else {'message': str(action)}

    def format_observation(self, observation):
        return json.dumps(observation, ensure_ascii=False, default=str)


multi_turns = {'gym_scheduler': GYMScheduler, 'openenv_scheduler': OpenEnvScheduler}


async def finished(value):
    return await value if inspect.isawaitable(value) else value


def get_logger(*args, **kwargs):
    return logging.getLogger('plugin')


def remove_response(messages):
    if messages and messages[-1]['role'] == 'assistant':
        return messages.pop()['content']
    return None


# Datasets that a plugin describes; rows are prepared by the program that trains.
DATASETS = {}


class DatasetMeta:

    def __init__(self, ms_dataset_id=None, hf_dataset_id=None, **kwargs):
        self.names = [name for name in (ms_dataset_id, hf_dataset_id, kwargs.get('dataset_path')) if name]


def register_dataset(meta, **kwargs):
    DATASETS.update({name: meta for name in meta.names})


class RowPreprocessor:

    def __init__(self, *args, **kwargs):
        pass


REWARD_NAMES = dict(ORM=ORM, AsyncORM=AsyncORM, PRM=PRM, orms=orms, prms=prms, rm_plugins=rm_plugins)
for class_name, name in {'MathAccuracy': 'accuracy', 'Format': 'format', 'ReActFormat': 'react_format',
                         'CosineReward': 'cosine', 'RepetitionPenalty': 'repetition',
                         'SoftOverlong': 'soft_overlong', 'ReactORM': 'toolbench'}.items():
    if name in BUILT_IN:
        REWARD_NAMES[class_name] = BUILT_IN[name]
REQUEST_NAMES = dict(InferRequest=InferRequest, RolloutInferRequest=RolloutInferRequest, ChatMessage=ChatMessage,
                     ChatCompletionResponseChoice=ChatCompletionResponseChoice)
TURN_NAMES = dict(MultiTurnScheduler=MultiTurnScheduler, RolloutScheduler=RolloutScheduler, multi_turns=multi_turns,
                  GYMScheduler=GYMScheduler, OpenEnvScheduler=OpenEnvScheduler, OpenEnvWrapper=OpenEnvWrapper,
                  Env=Env, envs=envs, Messages=List[Dict[str, Any]], **REQUEST_NAMES)
OTHER_NAMES = dict(get_logger=get_logger, remove_response=remove_response, Messages=List[Dict[str, Any]],
                   DatasetMeta=DatasetMeta, register_dataset=register_dataset, RowPreprocessor=RowPreprocessor,
                   ResponsePreprocessor=RowPreprocessor)
# Older and newer ms-swift have the same names in other modules.
NAMES = {**REWARD_NAMES, **TURN_NAMES, **OTHER_NAMES}


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of one package: those names that are here, and all others as absent."""

    def __init__(self, package, names):
        self.package, self.names = package, names

    def find_spec(self, name, path=None, target=None):
        if name != self.package and not name.startswith(self.package + '.'):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):

        def of_module(name):
            if name.startswith('__'):
                raise AttributeError(name)
            return self.names[name] if name in self.names else absent(f'{module.__name__}.{name}')

        module.__getattr__ = of_module


sys.meta_path.insert(0, Modules('swift', NAMES))
# ms-swift always has these, so plugins import them whether they need them or not: only their use fails.
for package in ('torch', 'transformers', 'modelscope', 'datasets'):
    sys.meta_path.append(Modules(package, {}))
