#!/bin/sh
# Makes .venv-bench and .venv-bench-tables, the environments that hold what the benchmarks compare
# with. Does nothing when they already hold what their requirements ask for.
set -eu

cd "$(dirname "$0")/.."

# Scenarios with a store serve the data with nginx, which waits by its Lua module.
if [ ! -e /usr/lib/nginx/modules/ngx_http_lua_module.so ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -qq update
    apt-get -qq install --yes --no-install-recommends nginx-light libnginx-mod-http-lua >/dev/null
  else
    echo "the remote-* scenarios need nginx-light and libnginx-mod-http-lua; install them" >&2
  fi
fi

# prepare FOLDER REQUIREMENTS COMMAND: installs exactly what stands there, then runs the command.
prepare() {
  venv=$1 wanted=$2
  stamp=$venv/.installed
  python=$venv/bin/python
  # The script counts as well: a change to a stand-in below must reach an existing environment.
  now=$(cat "$wanted" "$0" | cksum)
  if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then
    return
  fi
  echo "installing the peers into $venv" >&2
  rm -f "$stamp"
  [ -x "$python" ] || "${PYTHON:-python3}" -m venv "$venv"
  pip="$python -m pip --disable-pip-version-check --quiet"
  # The CPU build is enough. Where pip would take another, name an index that has it: PIP_INDEX_URL.
  $pip install "$(grep '^torch==' "$wanted")"
  grep -v '^torch==' "$wanted" | $pip install --no-deps --requirement /dev/stdin
  "$3"
  echo "$now" >"$stamp"
}

# `import streaming` reaches for torchvision, whose wheels load only beside an accelerator build of
# torch. The benchmarks touch no image, so a stand-in with the three names it asks for is enough.
stand_in() {
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$site/torchvision/transforms"
  cat >"$site/torchvision/__init__.py" <<'EOF'
"""Stand-in made by benchmarks/setup_peers.sh: just enough for `import streaming`."""
EOF
  cat >"$site/torchvision/datasets.py" <<'EOF'
class VisionDataset:
    """A base class that nothing here instantiates."""
EOF
  : >"$site/torchvision/transforms/__init__.py"
  cat >"$site/torchvision/transforms/functional.py" <<'EOF'
def to_tensor(picture):
    raise NotImplementedError("this environment has no torchvision")
EOF
  # Imported from the root folder, so that only installed packages can be found.
  (cd / && "$OLDPWD/$python" -c '
import array_record.python.array_record_module, lance, litdata, streaming
streaming.MDSWriter, streaming.StreamingDataset, litdata.optimize
')
}

readers_of_tables() {
  (cd / && "$OLDPWD/$python" -c 'import datasets, ray.data, torch_dataloader_utils')
}

prepare .venv-bench benchmarks/peers-requirements.txt stand_in
prepare .venv-bench-tables benchmarks/table-peers-requirements.txt readers_of_tables
