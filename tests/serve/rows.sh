# Sourced by tests that make rows of the fault table: prints them and keeps them for a result file.
# shellcheck shell=bash disable=SC2154
# The caller sets `scratch`, `source_dir`, `python` and `result`.
export PYTHONPATH=$source_dir/scripts
: >"$scratch/rows"

now_ms() { echo $(($(date +%s%N) / 1000000)); }
client() { "$python" "$source_dir/tests/serve/fault_client.py" "$@"; }
soak_field() { # NAME
  "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["soak"][sys.argv[2]])' \
    "$scratch/soak.json" "$1"
}

row() { # NUMBER NAME VALUE FIGURE
  printf 'PASS  %-36s %10s  %s\n' "$1 $2" "$3" "$4"
  printf '%s\t%s\t%s\n' "$1 $2" "$3" "$4" >>"$scratch/rows"
}
skip() { printf 'SKIP  %-36s %s\n' "$1 $2" "$3"; } # NUMBER NAME REASON

finish_rows() {
  if [[ -n $result ]]; then
    "$python" - "$scratch/rows" "$result" <<'PYTHON'
import json, os, sys
rows = []
for line in open(sys.argv[1]):
    name, value, figure = line.rstrip('\n').split('\t')
    rows.append({'name': name, 'passed': True, 'value': float(value), 'figure': figure})
with open(sys.argv[2], 'x') as file:
    json.dump({'schema': 'dspark-faults/1', 'cores': os.cpu_count(),
               'load_average': os.getloadavg()[0], 'faults': rows}, file, indent=1)
    file.write('\n')
PYTHON
  fi
  echo "ok"
}
