#!/usr/bin/env bash
# Brings a bare Debian 12 to where it can build apus: installs the packages that are missing, and unpacks the
# wheels pinned in cmake/pins.txt into .deps/. Safe to run again: what is there is left as it is.
#
#   cmake/bootstrap.sh [--cuda]
#
# --cuda           also unpacks what a build with APUS_CUDA=ON needs, as happens anyhow where nvcc is found
#                  (the CUDA toolkit itself is not installed).
# APUS_TORCH_ROOT  a libtorch 2.11 of your own (a folder with include/ and lib/): used, and nothing is downloaded.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$top/.deps
pins=$top/cmake/pins.txt
stamp=$deps/torch/apus-pins.txt
packages=(g++ cmake ninja-build ccache mold git ca-certificates libgloo-dev libpcre2-dev libutf8proc-dev
  zlib1g-dev libzstd-dev
  libspdlog-dev nlohmann-json3-dev libgtest-dev universal-ctags xz-utils python3 python3-pip unzip)

say() { printf 'bootstrap: %s\n' "$*"; }
die() {
  printf 'bootstrap: error: %s\n' "$*" >&2
  exit 1
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

install_packages() {
  local missing as_root=() output
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian: taking for granted that what these packages hold is installed: ${packages[*]}"
    return
  fi
  read -ra missing <<<"$(missing_packages)"
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo here; run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  "${as_root[@]}" update >/dev/null || say "apt-get update failed; trying with the lists that are there"
  output=$("${as_root[@]}" install --no-install-recommends -y "${missing[@]}" 2>&1) ||
    die "apt-get could not install ${missing[*]}:"$'\n'"$output"
}

# The pinned lines whose use is among the arguments.
pinned() {
  local use
  for use in "$@"; do awk -v use="$use" '!/^#/ && $4 == use { print $1, $2, $3, $4 }' "$pins"; done
}

python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  die "no python3 with pip here (Debian: apt-get install python3-pip)"
}

# download NAME VERSION SHA256 FOLDER: prints the path of the wheel; tries twice.
download() {
  local python folder sum attempt wheel
  python=$(python_with_pip)
  for attempt in 1 2; do
    folder=$4/$1.$attempt
    mkdir -p "$folder"
    if "$python" -m pip --quiet --disable-pip-version-check --no-cache-dir download --no-deps \
      --only-binary=:all: --python-version 311 --implementation cp --abi cp311 \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
      --dest "$folder" "$1==$2" >&2; then
      wheel=$(ls "$folder"/*.whl)
      sum=$(sha256sum "$wheel" | cut -d' ' -f1)
      if [ "$sum" = "$3" ]; then
        echo "$wheel"
        return
      fi
      say "$(basename "$wheel") has SHA-256 $sum, cmake/pins.txt wants $3" >&2
    fi
    rm -rf "$folder"
    [ "$attempt" = 2 ] || say "$1 $2 did not arrive whole; trying once more" >&2
  done
  die "could not download $1 $2. Is the Python package index reachable with pip, and is the disk full? Or set
  APUS_TORCH_ROOT to a folder with include/ and lib/ of libtorch 2.11."
}

# unpack NAME WHEEL STAGE WITH_CUDA: only what the build needs; quietly.
unpack() {
  local -a torch=('torch/include/*' torch/lib/libtorch_cpu.so torch/lib/libc10.so 'torch/lib/libgomp*')
  # With CUDA also Torch's own CMake package, whose targets name all of its libraries.
  [ "$4" = no ] || torch+=('torch/lib/*.so' 'torch/share/cmake/*')
  case $1 in
    torch) unzip -q -o "$2" "${torch[@]}" -d "$3" && unzip -q -o -j "$2" '*.dist-info/licenses/*' -d "$3/torch" ;;
    nvidia-cudnn-frontend) unzip -q -o "$2" 'include/*' -d "$3/torch/cudnn-frontend" ;;
    *) unzip -q -o -j "$2" 'nvidia/*/lib/lib*.so.*' -d "$3/torch/lib" ;;
  esac || die "could not unpack $(basename "$2") into $3; is the disk full?"
}

# fetch_wheels WITH_CUDA USE...: .deps/torch appears whole or not at all.
fetch_wheels() {
  local with_cuda=$1 stage=$deps/stage.$$ name version sum use wheel
  shift
  trap 'rm -rf "$deps"/stage.$$' EXIT
  mkdir -p "$stage"
  while read -r name version sum use; do
    say "downloading $name $version"
    wheel=$(download "$name" "$version" "$sum" "$stage")
    unpack "$name" "$wheel" "$stage" "$with_cuda"
    rm -f "$wheel"
  done < <(pinned "$@")
  pinned "$@" >"$stage/torch/apus-pins.txt"
  [ ! -e "$deps/torch" ] || mv "$deps/torch" "$stage/old"
  mv "$stage/torch" "$deps/torch"
}

provide_torch() {
  local uses=(cpu) with_cuda=$1 line
  if [ -n "${APUS_TORCH_ROOT:-}" ]; then
    for line in include/ATen/core/Tensor.h lib/libtorch_cpu.so; do
      [ -e "$APUS_TORCH_ROOT/$line" ] || die "APUS_TORCH_ROOT=$APUS_TORCH_ROOT has no $line"
    done
    return
  fi
  [ "$(uname -m)" = x86_64 ] || die "the pinned libtorch is for x86_64, this is $(uname -m): set APUS_TORCH_ROOT"
  mkdir -p "$deps"
  exec 9>"$deps/lock"
  flock 9
  # A link was made by hand and is not replaced.
  [ ! -L "$deps/torch" ] || return 0
  [ "$with_cuda" = no ] || uses+=(cuda)
  while read -r line; do
    if ! grep -qxF -- "$line" "$stamp" 2>/dev/null; then
      fetch_wheels "$with_cuda" "${uses[@]}"
      return
    fi
  done < <(pinned "${uses[@]}")
}

with_cuda=no
! command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null || with_cuda=yes
for argument in "$@"; do
  case $argument in
    --cuda) with_cuda=yes ;;
    *) die "unknown argument $argument (cmake/bootstrap.sh [--cuda])" ;;
  esac
done
install_packages
provide_torch "$with_cuda"
