# Runs the plugins: reads lines of JSON with an "op" and prints a line for each. What it asks back meanwhile are lines
# with "ask", which get one with "answer" or "refused". What plugins print goes to the error output.


class Args:
    """The settings of the run that plugins may look at."""

    def __init__(self, values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        raise AttributeError(f"args.{name} is not known here; there are {', '.join(sorted(vars(self)))}")


class Refusal(Exception):
    """What a plugin asks for and cannot have, or what went wrong in it; the text says where."""


class Runner:

    def __init__(self):
        self.files, self.args, self.rewards, self.prms = [], Args({}), {}, {}
        self.scheduler, self.episodes = None, {}
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

    def where(self, error, called=None):
        """The error with the line of the plugin that it comes from, or else of what was called."""
        text = f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
        if isinstance(error, SyntaxError) and error.filename:
            return f'{error.filename}:{error.lineno}: {text}'
        folders = tuple({os.path.dirname(file) + os.sep for file in self.files})
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folders)]
        if frames:
            return f'{frames[-1].filename}:{frames[-1].lineno}: {text}'
        code = getattr(called, '__code__', None)
        return f'{code.co_filename}:{code.co_firstlineno}: {text}' if code else text

    def guarded(self, call, called=None, behind=''):
        """What the call gives; all that a plugin may do wrong becomes a Refusal."""
        try:
            value = call()
            return self.loop.run_until_complete(value) if inspect.isawaitable(value) else value
        except Refusal:
            raise
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            raise Refusal(self.where(error, called) + behind) from error

    def load(self, message):
        self.args = Args(message['args'])
        for path in message['files']:
            path = os.path.abspath(os.path.expanduser(path))
            names = sorted(name for name in os.listdir(path) if name.endswith('.py')) if os.path.isdir(path) else None
            if names is not None and '__init__.py' in names:
                names = ['__init__.py']
            for file in [path] if names is None else [os.path.join(path, name) for name in names]:
                self.files.append(file)
                self.guarded(lambda: self.load_file(file))
        new = [name for name, kind in orms.items() if kind is not BUILT_IN.get(name)]
        return {'rewards': new, 'environments': list(envs), 'schedulers': list(multi_turns),
                'datasets': list(DATASETS), 'reward_models': list(rm_plugins),
                'prms': list(prms)}

    def load_file(self, file):
        folder, name = os.path.dirname(file), f'apus_plugin_{len(self.files)}'
        package = [folder] if file.endswith('__init__.py') else None
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=package)
        if spec is None:
            raise Refusal(f'{file}: no file of Python')
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

    def reward(self, message):
        name = message['name']
        if name not in self.rewards:
            kind = orms[name]
            made = self.guarded(lambda: kind(args=self.args), getattr(kind, '__init__', None))
            self.rewards[name] = made
        function = self.rewards[name]
        rows = message['answers']
        columns = {key: [row.get(key) for row in rows] for key in {key: None for row in rows for key in row}}
        completions = columns.pop('completion')
        if message['several_turns']:
            columns['trajectory_inputs'] = {row['request_id']: [row] for row in rows}
        columns['trainer_state'] = types.SimpleNamespace(**message['trainer_state'])
        given = self.guarded(lambda: function(completions, **columns), type(function).__call__,
                             f" (it is given completions, {', '.join(sorted(columns))})")
        return self.numbers(name, function, given, rows)

    def prm(self, message):
        """A process reward model may give a number for each step of an answer: the lowest counts."""
        name, rows = message['name'], message['answers']
        if name not in self.prms:
            self.prms[name] = self.guarded(prms[name], getattr(prms[name], '__init__', None))
        function, more = self.prms[name], {'request_config': None}
        if 'ground_truths' in inspect.signature(function.__call__).parameters:
            more['ground_truths'] = [row.get('solution') or '' for row in rows]
        requests = [InferRequest(messages=row['messages']) for row in rows]
        given = self.guarded(lambda: [min(x) if isinstance(x, (list, tuple)) else x
                                      for x in function(requests, **more)], type(function).__call__)
        return self.numbers(name, function, given, rows)

    def numbers(self, name, function, given, rows):
        numbers = self.guarded(lambda: [None if x is None or x != x else float(x) for x in given],
                               type(function).__call__, f': {given!r:.200} is no list of numbers')
        if any(x in (float('inf'), float('-inf')) for x in numbers):
            raise Refusal(f"the reward '{name}' gave an infinite number")
        if len(numbers) != len(rows):
            raise Refusal(f"the reward '{name}' gave {len(numbers)} numbers for {len(rows)} answers")
        return {'rewards': numbers}

    def play(self, message):
        name = message['scheduler']
        kind = multi_turns[name]
        if kind.run is not MultiTurnScheduler.run:
            raise Refusal(f"the scheduler '{name}' takes the turns in a run() of its own, by ms-swift's engine, which "
                          'is not here; what happens between turns belongs into step(), check_finished() and '
                          'on_turn_end()')
        self.scheduler = self.guarded(
            lambda: kind(infer_engine=None, max_turns=message['max_turns'], tokenizer=Tokenizer(),
                         gym_env=message['gym_env'], use_gym_env=bool(message['gym_env'])), kind.__init__)
        return {}

    def reset(self, message):
        episodes = []
        for start in message['episodes']:
            row = start['row']
            request = RolloutInferRequest(messages=deepcopy(row.get('messages') or []), uuid=str(start['id']),
                                          data_dict={key: row[key] for key in row if key != 'messages'},
                                          images=row.get('images') or [], tools=row.get('tools'))
            remove_response(request.messages)
            episodes.append(types.SimpleNamespace(request=request, total=0.0, continues=False,
                                                  asked=deepcopy(request.messages)))
            self.episodes[start['id']] = episodes[-1]
        self.guarded(lambda: self.scheduler.on_trajectory_start([episode.request for episode in episodes]))
        return {'replies': [{'observation': episode.request.messages} if episode.request.messages != episode.asked
                            else {} for episode in episodes]}

    def step(self, message):
        turns = message['episodes']
        episodes = [self.episodes[turn['id']] for turn in turns]
        choices = [self.spoken(episode, turn) for episode, turn in zip(episodes, turns)]
        number = [turn['turn'] + 1 for turn in turns]
        scheduler, all_of = self.scheduler, range(len(turns))

        async def turn_ends():
            return await asyncio.gather(*[
                finished(scheduler.on_turn_end(episodes[i].request, choices[i], number[i])) for i in all_of])

        ended = self.guarded(turn_ends)
        replies = []
        for i in all_of:
            done = self.guarded(lambda: scheduler.check_finished(episodes[i].request, choices[i], number[i]))
            replies.append(self.judged(episodes[i], ended[i] or {}, done))
            if replies[-1]['done'] or number[i] >= (scheduler.max_turns or number[i] + 1):
                replies[-1]['done'] = True
            else:
                replies[-1].update(self.next_turn(episodes[i], choices[i], number[i]))
        return {'replies': replies}

    @staticmethod
    def spoken(episode, turn):
        messages = episode.request.messages
        if episode.continues:
            messages[-1]['content'] += turn['completion']
        else:
            messages.append({'role': 'assistant', 'content': turn['completion']})
        return ChatCompletionResponseChoice(message=ChatMessage(turn['completion']),
                                            finish_reason='length' if turn['truncated'] else 'stop',
                                            token_ids=list(turn['completion_ids']))

    @staticmethod
    def judged(episode, ended, done):
        before = episode.total
        episode.total = float((ended.get('rollout_infos') or {}).get('total_reward', before))
        return {'reward': episode.total - before, 'done': bool(ended.get('done', done))}

    def next_turn(self, episode, choice, number):
        """What stands behind the model's turn now: new messages, or more of the model's own message."""
        name, request = f"the scheduler '{type(self.scheduler).__name__}'", episode.request
        shown, ids, images = deepcopy(request.messages), list(choice.token_ids), list(request.images)
        made = self.guarded(lambda: self.scheduler.step(request, choice, number))
        episode.request = request = made['infer_request']
        if request.images != images or 'images' in (made.get('rollout_infos') or {}):
            raise Refusal(f'{name} adds images to a conversation, which is not possible')
        own, mask = made.get('response_token_ids'), made.get('response_loss_mask')
        if own and (own[:len(ids)] != ids or (mask and (not all(mask[:len(ids)]) or any(mask[len(ids):])))):
            raise Refusal(f'{name} changes which tokens the model said, or which of them are learnt; what the model '
                          'said is the record')
        messages, last = request.messages, shown[-1]['content']
        if len(messages) > len(shown) and not messages[-1].get('content'):
            messages.pop()  # ms-swift's place for what comes next
        episode.continues = len(messages) == len(shown) and messages[:-1] == shown[:-1]
        if episode.continues and messages[-1]['content'].startswith(last):
            return {'continuation': messages[-1]['content'][len(last):]}
        new = messages[len(shown):]
        if messages[:len(shown)] != shown or any(message['role'] == 'assistant' for message in new):
            raise Refusal(f'{name} rewrites what was said, or speaks in the place of the model; what was said is the '
                          'record')
        return {'observation': new}

    def close(self, message):
        for episode in self.episodes.values():
            if isinstance(self.scheduler, GYMScheduler):
                self.guarded(lambda: self.scheduler._close_and_remove(episode.request.uuid))
        self.episodes.clear()
        return {}


def main():
    # Programs that plugins start neither read our questions nor write among our replies.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    logging.basicConfig(level=logging.INFO, format='[%(levelname)s:%(name)s] %(message)s')
    runner = Runner()
    for text in iter(QUESTIONS.readline, ''):
        message = json.loads(text)
        try:
            say(getattr(runner, message['op'])(message))
        except Refusal as error:
            say({'error': str(error)})


main()
