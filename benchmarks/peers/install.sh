#!/usr/bin/env bash
# Installs the peers that the benchmarks run beside ours: `install.sh [cerbos] [aegis-server]`, both by default.
set -euo pipefail
PEERS=${PEERS:-$HOME/.cache/toolgate-peers}

cerbos() {
  command -v npm >/dev/null || { echo "Cerbos comes from npm, which is not installed" >&2; exit 1; }
  mkdir -p "$PEERS/cerbos"
  cd "$PEERS/cerbos"
  [ -f package.json ] || npm init --yes >/dev/null
  npm install --silent cerbos@0.51.0
}

aegis_server() {
  if command -v uv >/dev/null; then
    uv venv --quiet --clear "$PEERS/aegis-server"
    uv pip install --quiet --python "$PEERS/aegis-server/bin/python" 'agent-aegis[server]==1.0.0'
  else
    python3 -m venv --clear "$PEERS/aegis-server"
    "$PEERS/aegis-server/bin/python" -m pip install --quiet 'agent-aegis[server]==1.0.0'
  fi
}

[ $# -gt 0 ] || set -- cerbos aegis-server
for one in "$@"; do
  case $one in
    cerbos) (cerbos) ;;
    aegis-server) aegis_server ;;
    *) echo "unknown peer '$one'; there are cerbos and aegis-server" >&2; exit 2 ;;
  esac
done
