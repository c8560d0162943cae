# ./run test --only python: builds the Python package (python/) in a virtual environment, and runs its tests. Not among the other
# presets: PyTorch with all that it asks for is 5 GB. Sourced by test.sh.

test_python() {
  local folder=build/python/environment python=${PYTHON:-python3} failed=()
  require_packages "${build_packages[@]}" "${cluster_packages[@]}" dataset-fashion-mnist python3-dev python3-venv
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "$python is too old: set PYTHON to a Python from 3.10 on"
  [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
  phase "installing PyTorch" "$folder/bin/python" -m pip install -q 'torch>=2.15' numpy scikit-build-core mypy || fail "PyTorch was not installed (see above)"
  ! command -v ccache >/dev/null || export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(jobs)}
  phase "building python" "$folder/bin/python" -m pip install -q --no-build-isolation --no-deps --force-reinstall ./python ||
    fail "the package was not built (see above)"
  phase "building kernels to talk to" cmake --build "$(newest_build)" --target echo_server file_sender ||
    fail "the examples were not built (see above)"
  phase "testing python" in_tests_folder "$root/$folder/bin/python" -B -m unittest || failed+=(python)
  print_phases
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "all tests passed: python"
}

# The folder in which pip has just built the package: it has one for each version of Python.
newest_build() { local caches; caches=$(ls -t build/python/*/CMakeCache.txt) && dirname "${caches%%$'\n'*}"; }
in_tests_folder() { (cd python/tests && timeout 1200 "$@"); }
