#!/usr/bin/env bash
# Find a Python that can run onnxgate, and run `onnxgate.github.install` with it. If there is none, report the remedy.
set -euo pipefail

suits() {
  "$1" -I -c 'import sys; sys.exit(sys.implementation.name != "cpython" or sys.version_info < (3, 10))' > /dev/null 2>&1
}

# Print the version of an interpreter, and nothing for another program. Its output must not become a command.
describe() {
  local version
  version="$("$1" --version 2>&1 | tr '\n' ' ' | tr -dc 'A-Za-z0-9. ')" || true
  if [[ "$version" == "Python "[0-9]* ]]; then echo "${version:0:80}"; fi
}

fail() { # message, hint
  echo "::error title=onnxgate::$1%0Ahint: $2"
  {
    printf '## 🟡 onnxgate\n\n**Undecided: onnxgate stopped with an error (exit status 3)**\n\n'
    printf '```text\nerror: %s\nhint: %s\n```\n' "$1" "$2"
  } >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
  exit 3
}

# Interpreters of the runner's tool cache, newest first. Backslashes are Windows' separators.
cached() {
  local tools="${RUNNER_TOOL_CACHE:-}" path
  if [ -z "$tools" ]; then return; fi
  for path in "${tools//\\//}"/Python/3.*/*/{bin/python3,python.exe}; do
    if [ -x "$path" ]; then echo "$path"; fi
  done | sort -rV
}

python=""
seen=""
if [ -n "${ONNXGATE_ACTION_PYTHON:-}" ]; then
  if [ -n "${ONNXGATE_ACTION_FOLDER:-}" ] || suits "$ONNXGATE_ACTION_PYTHON"; then # the first step has checked it
    python="$ONNXGATE_ACTION_PYTHON"
  else
    seen="$(describe "$ONNXGATE_ACTION_PYTHON")"
  fi
else
  while read -r candidate; do
    if ! command -v "$candidate" > /dev/null; then continue; fi
    if suits "$candidate"; then
      python="$candidate"
      break
    fi
    if [ -z "$seen" ]; then seen="$(describe "$candidate")"; fi
  done < <(printf '%s\n' python3 python python3.{14,13,12,11,10}; cached)
fi

if [ -z "$python" ]; then
  found="no Python was found on PATH"
  if [ -n "$seen" ]; then found="found ${seen% }"; fi
  fail "onnxgate requires CPython 3.10 or newer; $found" 'set the input `python-version: "3.12"` of the action'
fi
folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
main='import sys; sys.path.insert(0, sys.argv[1]); from onnxgate.github.install import main; main()'
exec "$python" -I -c "$main" "$folder"
