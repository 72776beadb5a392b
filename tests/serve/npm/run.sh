#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh APUS FOLDER: installs the clients in FOLDER, serves a small model, lets them ask. Exit code 77: skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
apus=$1 folder=$2
skip() { echo "SKIPPED: $*"; exit 77; }
command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed"
mkdir -p "$folder"
cp "$here"/package.json "$here"/*.mjs "$folder/"
cd "$folder"
# What is installed already is taken, unless the list of packages has changed since.
cmp -s package.json node_modules/.installed || {
  npm install --no-audit --no-fund --silent >npm.log 2>&1 || skip "npm install failed (see $folder/npm.log)"
  cp package.json node_modules/.installed
}

: >server.log  # it is read before the server's shell has made it
[ -f model/config.json ] || "$apus" init --preset tiny --output_dir model --seed 5 >/dev/null
"$apus" deploy --model model --host 127.0.0.1 --port 18700 --api_key secret >server.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
url=
for _ in $(seq 300); do
  url=$(sed -n 's|.*serving .* at \(http://[0-9.:]*\)/v1.*|\1|p' server.log)
  [ -n "$url" ] && break
  kill -0 $server 2>/dev/null || { cat server.log; exit 1; }
  sleep 0.1
done
[ -n "$url" ] || { echo "the server did not start"; cat server.log; exit 1; }
node clients.mjs "$url" secret && node responses.mjs "$url" secret && node frameworks.mjs "$url" secret || { tail -n 40 server.log; exit 1; }
kill -TERM $server
wait $server || { echo "the server did not stop well"; tail -n 20 server.log; exit 1; }
