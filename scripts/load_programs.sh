# load_programs.sh PROGRAM...: runs each once, with little to do. The driver may first have to translate a program's code for the GPU, which takes a
# minute for a large program; it keeps what it has made (CUDA_CACHE_PATH). Whether a program does what it should is for the steps after this one.
set -euo pipefail
. scripts/common.sh
read_data_options
export GPUSOCK_TEST_SCALE=0.01 GPUSOCK_HOST_RINGS=off

once() {
  case "$1" in
    *_test) bash scripts/first_test.sh "$1" ;;
    */gpusock-bench) "$1" lat --link p2p --size 64 --group thread --iterations 1 --repeat 1 ;;
    *) "$1" --serial --nodes 2 --epochs 1 --limit 128 "${data_options[@]}" ;;
  esac
}

figure=''
for program in "$@"; do
  began=$SECONDS status=0
  once "$program" </dev/null || status=$?
  figure+=", $(basename "$program") $((SECONDS - began)) s$([ $status -eq 0 ] || echo " (ended with $status)")"
done
echo "figure: ${figure#, }"
