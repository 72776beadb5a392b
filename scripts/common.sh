# What ./check and ./quickstart share: the packages of a Debian machine, and how to configure and build.
# Sourced by bash from the project's root.

# Debian packages, and what each is for. The only list; docs/dependencies.md explains them.
build_packages=(g++ cmake ninja-build ccache lld binutils nlohmann-json3-dev libpcre2-dev libutf8proc-dev libyaml-cpp-dev
                zlib1g-dev libzstd-dev libssl-dev libcurl4-openssl-dev libboost-dev libgtest-dev
                libjpeg-dev libpng-dev libwebp-dev libavformat-dev libavcodec-dev libswscale-dev libswresample-dev)
torch_packages=(libtorch-dev libopenblas0-pthread libdnnl-dev)  # unless another libtorch is at hand
check_packages=(clang libclang-rt-dev python3-pil)              # the sanitizers and the fuzz targets; a reference for pictures

# A script that sets stages=N numbers its headings, and tells the time since its start: "== 2/7 Building build (0:03)".
say() {
  local number='' time=''
  if [ -n "${stages:-}" ]; then
    stage=$((${stage:-0} + 1)) number="$stage/$stages "
    time=$(printf ' (%d:%02d)' $((SECONDS / 60)) $((SECONDS % 60)))
  fi
  printf '\n== %s%s%s\n' "$number" "$*" "$time"
}
die() { printf '%s\n' "$*" >&2; exit 1; }

# Whether a libtorch is there that needs no Debian package: cmake/FindLibtorch.cmake looks at the same two places. Debian's own
# python3-torch has no TorchConfig.cmake and no library beside it: it does not count.
other_torch() {
  [ -n "${Torch_DIR:-}" ] || python3 -c 'import importlib.util as u, os, sys
s = u.find_spec("torch")
sys.exit(not (s and os.path.exists(s.submodule_search_locations[0] + "/share/cmake/Torch/TorchConfig.cmake")))' 2>/dev/null
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# install_missing PACKAGE...: on Debian and its relatives; elsewhere CMake says what is missing.
install_missing() {
  if ! command -v apt-get >/dev/null; then
    echo "No apt-get here: the libraries must be there already (docs/dependencies.md lists them; scripts/bundle-deps makes a folder of them)."
    return 0
  fi
  local missing=() package
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  echo "Installing the missing Debian packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "These packages are missing and neither root nor sudo is at hand: ask for  apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -q -o Acquire::Retries=3 || echo "apt-get update failed; trying with the lists that are here"
  local known=()  # a release that lacks a package may do without it; if not, CMake says what is missing and where to get it
  for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); else echo "No package $package in this release: going on without it"; fi
  done
  if [ ${#known[@]} -eq 0 ]; then return 0; fi
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "${known[@]}" ||
    die "apt-get could not install: ${known[*]}"
}

# configure_and_build PRESET [-DNAME=VALUE...] [TARGET...]
configure_and_build() {
  local preset=$1 folder=build start=$SECONDS
  shift
  [ "$preset" = release ] || folder="build-$preset"
  local extra=()
  while [[ ${1:-} == -D* ]]; do extra+=("$1"); shift; done
  if [ -n "${APUS_DEPS:-}" ]; then extra+=("-DAPUS_DEPS=$APUS_DEPS"); fi
  if [ -n "${Torch_DIR:-}" ]; then extra+=("-DTorch_DIR=$Torch_DIR"); fi
  say "Building $folder"
  cmake --preset "$preset" "${extra[@]}" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; die "cmake failed"; }
  rm -f "$folder.log"
  NINJA_STATUS='[%f of %t, %e s] ' cmake --build "$folder" -j "$(nproc)" ${1:+--target "$@"} || die "the build of $folder failed"
  echo "$folder is built ($((SECONDS - start)) s)"
}
