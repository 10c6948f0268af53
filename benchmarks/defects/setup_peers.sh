#!/bin/sh
# Makes .venv-bench-defects and .venv-bench-easydata, the environments of the two libraries that
# `run.py` asks. Does nothing when they already hold what their requirements ask for.
set -eu

cd "$(dirname "$0")/../.."
here=benchmarks/defects

# prepare FOLDER REQUIREMENTS MODULE: installs exactly what stands there, then imports the module.
prepare() {
  venv=$1 wanted=$2
  stamp=$venv/.installed
  python=$venv/bin/python
  now=$(cksum <"$wanted")
  if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then
    return
  fi
  echo "installing $3 into $venv" >&2
  rm -f "$stamp"
  [ -x "$python" ] || "${PYTHON:-python3}" -m venv "$venv"
  pip="$python -m pip --disable-pip-version-check --quiet"
  # The CPU build is enough. Where pip would take another, name an index that has it: PIP_INDEX_URL.
  if torch=$(grep '^torch==' "$wanted"); then
    $pip install "$torch"
  fi
  grep -v '^torch==' "$wanted" | $pip install --no-deps --requirement /dev/stdin
  # Imported from the root folder, so that only installed packages can be found.
  (cd / && "$OLDPWD/$python" -c "import $3" >/dev/null 2>&1) || {
    echo "$3 cannot be imported in $venv" >&2
    exit 1
  }
  echo "$now" >"$stamp"
}

prepare .venv-bench-defects $here/dataloader-utils-requirements.txt torch_dataloader_utils
prepare .venv-bench-easydata $here/easydata-requirements.txt easydel.data
