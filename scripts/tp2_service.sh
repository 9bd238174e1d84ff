# Sourced by start_tp2.sh, stop_tp2.sh and status_tp2.sh: options and the worker's admin port.
# shellcheck shell=bash disable=SC2034,SC2154
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

unit=dsv41-dspark-worker-tp2.service
admin=127.0.0.1:18628
wait_s=120
systemctl=(systemctl)

read_options() { # SCRIPT ARGUMENTS...
  local script=$1
  shift
  while (($# > 0)); do
    case $1 in
      --unit | --admin | --wait)
        if (($# < 2)); then fail 2 "$1 needs a value"; fi
        case $1 in
          --unit) unit=$2 ;;
          --admin) admin=$2 ;;
          --wait) wait_s=$2 ;;
        esac
        shift
        ;;
      --user) systemctl=(systemctl --user) ;;
      -h | --help) print_help "$script"; exit 0 ;;
      *) fail 2 "unknown argument '$1'; see --help" ;;
    esac
    shift
  done
  [[ $wait_s =~ ^[0-9]+$ ]] || fail 2 "--wait needs a number of seconds, got '$wait_s'"
  command -v systemctl >/dev/null || fail 3 "expected systemctl, found none"
}

# Through bash itself: an operator's machine need not have an HTTP client.
admin_get() { # PATH
  local host=${admin%:*} port=${admin##*:}
  exec 3<>"/dev/tcp/$host/$port" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: %s\r\n\r\n' "$1" "$admin" >&3
  timeout 5 cat <&3 | sed '1,/^\r$/d'
  exec 3>&-
}
readiness() { admin_get /readyz 2>/dev/null || echo "its admin port $admin does not answer"; }
is_ready() { [[ $(readiness) == ready ]]; }
