#include "tests/kernels/matrix_product.cuh"

#include <cstring>
#include <random>

namespace gpusock::test {
namespace {

struct Sizes {
  int rows, inner, columns;
};

std::vector<float> random_matrix(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> matrix(static_cast<std::size_t>(rows * columns));
  for (auto& element : matrix) element = value(random);
  return matrix;
}

/// The kernel's order of operations. A product is stored before it is added, so that no compiler fuses the two.
float dot_as_kernel(const std::vector<float>& a, const std::vector<float>& b, const Sizes& sizes, int row, int column) {
  float sum = 0;
  for (int k = 0; k < (sizes.inner + kTile - 1) / kTile * kTile; ++k) {
    const bool inside = k < sizes.inner;
    volatile float product = inside ? a[row * sizes.inner + k] * b[k * sizes.columns + column] : 0.0f;
    sum = sum + product;
  }
  return sum;
}

TEST(MatrixProduct, EqualsTheHostsBitForBit) {
  REQUIRE_DEVICE();
  for (const Sizes sizes : {Sizes{1, 1, 1}, Sizes{16, 16, 16}, Sizes{17, 33, 15}, Sizes{64, 100, 48}}) {
    const auto a = random_matrix(sizes.rows, sizes.inner, 1), b = random_matrix(sizes.inner, sizes.columns, 2);
    DeviceArray<float> device_a(a), device_b(b), device_c(static_cast<std::size_t>(sizes.rows * sizes.columns));
    const dim3 grid((sizes.columns + kTile - 1) / kTile, (sizes.rows + kTile - 1) / kTile);
    run_kernel({grid, dim3(kTile, kTile)}, multiply_tiled, device_a.data(), device_b.data(), device_c.data(),
               sizes.rows, sizes.inner, sizes.columns);
    const auto c = device_c.read();
    for (int row = 0; row < sizes.rows; ++row) {
      for (int column = 0; column < sizes.columns; ++column) {
        const float expected = dot_as_kernel(a, b, sizes, row, column);
        ASSERT_EQ(std::memcmp(&c[row * sizes.columns + column], &expected, sizeof expected), 0) << row << ',' << column;
      }
    }
  }
}

}  // namespace
}  // namespace gpusock::test
