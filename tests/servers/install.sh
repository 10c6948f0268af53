#!/bin/sh
# Installs the servers that tests run against and pip cannot bring into .venv:
#   tests/servers/install.sh [nginx] [sshd] [azurite] [localstack] [ceph] [swift] [strace]
#     [xxhsum] [composer]
# What is there already is left alone. What cannot be installed here is reported and left out, and
# its tests say so when they skip; with CI set that is an error.
set -eu

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
SERVERS=$ROOT/.servers
AZURITE=azurite@3.35.0
LOCALSTACK="localstack-core[base-runtime]==4.11.1
moto-ext[all]
cbor2<5.8
pyopenssl<25
cryptography<45
service_identity==24.2.0
joserfc<1.5"
# Composer asks for another torch and for torchvision, which would bring gigabytes.
COMPOSER="mosaicml==0.32.1 torchmetrics==1.9.0 torch-optimizer==0.3.0 pytorch-ranger==0.1.1
lightning-utilities==0.15.3"
COMPOSER_NEEDS="coolname docker filelock importlib-metadata mosaicml-cli msgspec numpy<2.2 packaging
pillow psutil py-cpuinfo pyyaml requests rich tabulate tqdm xxhash zstandard"
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
missing=0

# A stamp names what was installed, so that another version replaces it.
is_stamped() { [ -f "$SERVERS/$1.stamp" ] && [ "$(cat "$SERVERS/$1.stamp")" = "$2" ]; }
stamp() { mkdir -p "$SERVERS" && printf '%s\n' "$2" >"$SERVERS/$1.stamp"; }

give_up() {
  echo "tests/servers/install.sh: $1 is not installed: $2" >&2
  missing=1
}

# apt's lists are fetched once, and only if something is to be installed.
apt_install() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then return 1; fi
  if [ -z "${apt_updated:-}" ]; then apt-get update -qq && apt_updated=1; fi
  # A run level that starts nothing: these are no services of the machine.
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_nginx() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nginx >/dev/null && return
  apt_install nginx-light || give_up nginx "needs root and apt-get, or install nginx yourself"
}

# Not a server: it checks the sums that writers leave.
install_xxhsum() {
  command -v xxhsum >/dev/null && return
  apt_install xxhash || give_up xxhsum "needs root and apt-get, or install xxhash yourself"
}

# Not a server: the fault tests kill the writer at chosen system calls with it.
install_strace() {
  command -v strace >/dev/null && return
  apt_install strace || give_up strace "needs root and apt-get, or install strace yourself"
}

install_sshd() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd >/dev/null && return
  apt_install openssh-server || give_up sshd "needs root and apt-get, or install OpenSSH yourself"
}

install_azurite() {
  is_stamped azurite "$AZURITE" && return
  command -v npm >/dev/null || apt_install nodejs npm || {
    give_up azurite "needs npm, or root and apt-get to get it"
    return
  }
  mkdir -p "$SERVERS/azurite"
  if npm install --prefix "$SERVERS/azurite" --no-audit --no-fund --loglevel=error "$AZURITE"; then
    stamp azurite "$AZURITE"
  else
    give_up azurite "npm failed"
  fi
}

install_localstack() {
  is_stamped localstack "$LOCALSTACK" && return
  venv=$SERVERS/localstack
  uv=$(dirname -- "$PYTHON")/uv
  if "$uv" venv --quiet --clear --python "$PYTHON" "$venv" && echo "$LOCALSTACK" |
    "$uv" pip install --quiet --python "$venv/bin/python" -r -; then
    stamp localstack "$LOCALSTACK"
  else
    give_up localstack "uv failed; it wants a Python that its pins know, such as 3.11"
  fi
}

# Not a server: a trainer, in an environment of its own. It imports names of torchvision, and uses
# none of them here: a stand-in has any.
install_composer() {
  is_stamped composer "$COMPOSER" && return
  venv=$SERVERS/composer
  uv=$(dirname -- "$PYTHON")/uv
  export UV_FIND_LINKS="${UV_FIND_LINKS-${PIP_FIND_LINKS-}}"
  # Words of a list, split on purpose.
  # shellcheck disable=SC2086
  if "$uv" venv --quiet --clear --python "$PYTHON" "$venv" &&
    "$uv" pip install --quiet --python "$venv/bin/python" \
      --constraint "$ROOT/constraints.txt" torch &&
    "$uv" pip install --quiet --python "$venv/bin/python" $COMPOSER_NEEDS &&
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps $COMPOSER; then
    cp "$ROOT/tests/servers/any_torchvision.py" \
      "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torchvision.py"
    stamp composer "$COMPOSER"
  else
    give_up composer "uv failed; it wants a Python that its pins know, such as 3.11"
  fi
}

install_ceph() {
  command -v radosgw >/dev/null && command -v ceph-mon >/dev/null &&
    command -v ceph-osd >/dev/null && command -v ceph >/dev/null && return
  apt_install radosgw ceph-mon ceph-osd ceph-common || give_up ceph "needs root and apt-get"
}

install_swift() {
  command -v swift-proxy-server >/dev/null && command -v swift-object-server >/dev/null &&
    command -v memcached >/dev/null && return
  apt_install swift-proxy swift-account swift-container swift-object memcached ||
    give_up swift "needs root and apt-get"
}

for server; do
  case $server in
  nginx | sshd | azurite | localstack | ceph | swift | strace | xxhsum | composer)
    "install_$server" ;;
  *) echo "unknown server: $server" >&2 && exit 2 ;;
  esac
done
[ "$missing" -eq 0 ] || [ -z "${CI:-}" ]
