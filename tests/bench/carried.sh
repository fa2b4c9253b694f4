# Sourced by device_round.sh and multi_gpu.sh on a machine that only runs what carry.sh collected: `carry` is that folder;
# programs are unpacked into `bin`, libraries found, and peers() makes the peers' wheels importable.
site=$(python3 -c 'import importlib.util, os; print(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)))')
export LD_LIBRARY_PATH=$site/torch/lib:$site/nvidia/cudnn/lib:$site/nvidia/nccl/lib:$site/nvidia/cu13/lib:$carry/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
bin=/tmp/apus_bin
mkdir -p "$bin"
for packed in "$carry"/bin/*.gz; do  # each unpacked when it has changed
  name=$(basename "$packed" .gz)
  sum=$(cksum <"$packed")
  if [ "$(cat "$bin/$name.sum" 2>/dev/null)" != "$sum" ]; then
    gzip -dc "$packed" >"$bin/$name" && chmod +x "$bin/$name" && echo "$sum" >"$bin/$name.sum"
  fi
done

peers() {  # the peers' wheels, once a machine
  if [ ! -d /tmp/site ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target /tmp/site \
      "$carry"/wheels/*.whl || exit 1
  fi
  export PYTHONPATH=/tmp/site
}
