#!/usr/bin/env bash
# Configures, builds and runs one of the projects beside this file against apus; ctest calls it.
#
#   consumer.sh KIND BUILD_FOLDER TORCH_ROOT
#
# KIND: find_package, add_subdirectory or beside_torch. Exit 77: skipped, the reason is printed.
set -euo pipefail

kind=$1 build=$2 torch=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$build/tests/package/$kind
prefix=$work/prefix

skip() {
  echo "skipped: apus_package_$kind: $*"
  exit 77
}

options=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
case $kind in
  add_subdirectory) options+=(-DAPUS_CUDA=OFF -DAPUS_TORCH_ROOT="$torch") ;;
  find_package) options+=(-DCMAKE_PREFIX_PATH="$prefix") ;;
  beside_torch)
    command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null ||
      skip "Torch's own CMake package needs a CUDA toolkit, and none is found"
    [ -e "$torch/share/cmake/Torch/TorchConfig.cmake" ] ||
      skip "$torch holds no CMake package of Torch (cmake/bootstrap.sh --cuda unpacks it)"
    options+=(-DCMAKE_PREFIX_PATH="$prefix;$torch")
    ! command -v ccache >/dev/null || options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    ;;
esac

# The consumer's own files are made anew each time; apus below them stays.
rm -rf "$prefix" "$work/build/CMakeCache.txt"
if [ "$kind" != add_subdirectory ]; then
  cmake --install "$build" --prefix "$prefix" >/dev/null
  env -u LD_LIBRARY_PATH "$prefix/bin/apus" --version
fi
cmake -S "$here/$kind" -B "$work/build" "${options[@]}"
cmake --build "$work/build" --target consumer
env -u LD_LIBRARY_PATH OMP_NUM_THREADS=1 "$work/build/consumer"
