# first_test.sh PROGRAM: runs the first of a GoogleTest program's tests.
set -euo pipefail
first=$("$1" --gtest_list_tests | awk '/^[^ ]*\./ { suite = $1 } /^  / && !/DISABLED_/ && !found++ { print suite $1 }')
exec "$1" --gtest_color=no "--gtest_filter=$first"
