#!/usr/bin/env bash
# A program that asks the model by OpenAI's API learns as it is (--environment agent:PROGRAM): the game of turns.sh, played by
# agent/guess.py. AGENT="node examples/agent/guess.mjs" plays it with OpenAI's own client (npm install openai). The reward in
# the log is the share of games that were won: 0.3 by chance. STEPS=200 EPISODES=256 learns it, as turns.sh does.
here=$(cd "$(dirname "$0")" && pwd)
export OUT=${OUT:-output/agent}
STEPS=${STEPS:-3} exec "$here/turns.sh" --environment "agent:${AGENT:-python3 $here/agent/guess.py}" --max_turns 4 \
  --per_device_train_batch_size "${EPISODES:-32}" --logging_steps 1 "$@"
