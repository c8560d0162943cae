# ./run unpack, in a bundle: the tests and the programs that demo, bench and gpu-check do not need. gpu-check does it by itself.
main() {
  [ $# -eq 0 ] || misuse "unpack takes no arguments"
  in_bundle || fail "unpack is for bundles (./run bundle); where the sources are, programs are in build/"
  unpack_bundle
  say "bin: $(ls bin | tr '\n' ' ')"
  say "tests: $(ls tests | tr '\n' ' ')"
}
