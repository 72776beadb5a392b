#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh [--kind cpu|cuda|ascend|source] [--prefix DIR] [--dry-run]: builds what fits this machine and installs it.
#   cpu     on Debian and Ubuntu with a libtorch package: a .deb, which apt removes again
#   cuda    an NVIDIA GPU is here: pip's torch in an environment of its own, DIR/share/apus, and a wheel built for it
#   ascend  an Ascend NPU is here: the same with torch_npu, whose version follows --torch
#   source  anything else that has a libtorch: built and copied to DIR
# Without --kind it looks at the machine and says what it has chosen and why. DIR is /usr/local for root, else ~/.local.
# --torch M.N.P: the torch of the environment (2.7.1 with torch_npu, pip's newest otherwise).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. scripts/common.sh

kind='' prefix='' torch='' dry=false
while [ $# -gt 0 ]; do
  case $1 in
    --kind) kind=${2:-}; shift ;;
    --prefix) prefix=${2:-}; shift ;;
    --torch) torch=${2:-}; shift ;;
    --dry-run) dry=true ;;
    -h | --help) sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "install.sh: $1 is no option here: --kind, --prefix, --torch, --dry-run" ;;
  esac
  shift
done
if [ -z "$prefix" ]; then
  prefix=$HOME/.local
  [ "$(id -u)" -ne 0 ] || prefix=/usr/local
fi

has_nvidia() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }
has_ascend() { command -v npu-smi >/dev/null || [ -e "${APUS_DEV:-/dev}/davinci0" ]; }
has_debian_torch() { command -v apt-cache >/dev/null && apt-cache show libtorch-dev >/dev/null 2>&1; }

why="--kind says so"
if [ -z "$kind" ]; then
  if has_nvidia; then kind=cuda why="nvidia-smi shows a GPU"
  elif has_ascend; then kind=ascend why="there is an Ascend NPU"
  elif has_debian_torch; then kind=cpu why="no GPU or NPU is here, and apt has libtorch"
  else kind=source why="no GPU or NPU is here, and apt has no libtorch"
  fi
fi
case $kind in cpu | cuda | ascend | source) ;; *) die "install.sh: --kind $kind is not possible: cpu, cuda, ascend or source" ;; esac
echo "Apus for $kind ($why)"

# do_it COMMAND...: or only says it.
do_it() {
  echo "+ $*"
  if ! $dry; then "$@"; fi
}
as_root() {
  if [ "$(id -u)" -eq 0 ]; then do_it "$@"; else do_it sudo "$@"; fi
}
make_ready() { if $dry; then echo "+ apt-get install what is missing of: $*"; else install_missing "$@"; fi; }

in_environment() {  # in_environment PACKAGE...: torch and what it is with, the wheel for them, links to the program
  local home=$prefix/share/apus
  command -v python3 >/dev/null || die "python3 is missing, with which pip brings torch: apt-get install python3-venv"
  make_ready "${build_packages[@]}" zip
  do_it python3 -m venv "$home"
  do_it "$home/bin/pip" install -q "$@" numpy
  do_it scripts/build-wheel "$home/bin/python" dist
  do_it "$home/bin/pip" install -q --force-reinstall --no-deps dist/apus-*.whl
  do_it mkdir -p "$prefix/bin"
  for name in apus swift megatron; do do_it ln -sf "$home/bin/$name" "$prefix/bin/$name"; done
}

case $kind in
  cpu)
    make_ready "${build_packages[@]}" "${torch_packages[@]}"
    do_it cmake --preset release -DAPUS_TESTS=OFF
    do_it cmake --build build --target apus
    do_it cpack --config build/CPackConfig.cmake -G DEB -B dist
    as_root apt-get install -y --reinstall ./dist/apus_*.deb
    prefix=/usr
    ;;
  cuda) in_environment "torch${torch:+==$torch}" ;;
  ascend) in_environment "torch==${torch:-2.7.1}" "torch_npu==${torch:-2.7.1}" pyyaml ;;
  source)
    do_it cmake --preset release -DAPUS_TESTS=OFF
    do_it cmake --build build --target apus
    do_it cmake --install build --prefix "$prefix" --strip
    ;;
esac
if $dry; then exit 0; fi
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "Add $prefix/bin to PATH." ;; esac
"$prefix/bin/apus" --version
