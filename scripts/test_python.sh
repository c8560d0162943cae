# ./run test --only python: builds a wheel of the Python package (python/), installs it in a virtual environment, and runs its tests. Not
# among the other presets: PyTorch with all that it asks for is 5 GB. Sourced by test.sh.
. scripts/python_wheel.sh

test_python() {
  local environment python_tag wheel wheel_build failed=()
  require_packages "${build_packages[@]}" "${cluster_packages[@]}" "${python_packages[@]}" dataset-fashion-mnist
  make_python_environment mypy
  build_wheel build/python/wheels
  "$environment/bin/python" -m pip install -q --no-index --no-deps --force-reinstall "$wheel" || fail "the wheel was not installed (see above)"
  phase "building kernels to talk to" cmake --build "$wheel_build" --target echo_server file_sender ||
    fail "the examples were not built (see above)"
  phase "testing python" in_tests_folder "$root/$environment/bin/python" -B -m unittest || failed+=(python)
  print_phases
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "all tests passed: python"
}

in_tests_folder() { (cd python/tests && GPUSOCK_TEST_WHEEL=$root/$wheel GPUSOCK_TEST_BUILD=$root/$wheel_build timeout 1200 "$@"); }
