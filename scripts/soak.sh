# ./run soak: the deterministic simulation on fresh seeds, or on the bugs that are planted in its copy of the sources.
. scripts/packages.sh

main() {
  local minutes='' planted=no
  while [ $# -gt 0 ]; do
    case "$1" in
      --minutes) [ $# -ge 2 ] || misuse "--minutes takes a number"; minutes=$2; shift 2 ;;
      --minutes=*) minutes=${1#--minutes=}; minutes=${minutes:-none}; shift ;;
      --planted-bugs) planted=yes; shift ;;
      *) misuse "soak does not take \"$1\"" ;;
    esac
  done
  [ -z "$minutes" ] || [ $planted = no ] || misuse "--planted-bugs takes as long as it takes, without --minutes"
  minutes=${minutes:-1}
  case "$minutes" in 0 | *[!0-9]*) misuse "--minutes takes a number from 1 on" ;; esac
  needs_sources soak
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  with_tests=ON
  tests_wanted=all # the simulation is none of the tests of ./run test
  build host simulation >/dev/null
  if [ "$planted" = yes ]; then
    build/host/tests/simulation/simulation --planted-bugs --seeds 1..50000
  else
    build/host/tests/simulation/simulation --minutes "$minutes"
  fi
}
