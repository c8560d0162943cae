/// @file MPI_Allreduce on floats: the baseline of `param_sync bench --beside mpi`.
///
///     mpirun -n 4 param_sync-mpi BYTES REPEATS
///
/// Rank 0 prints the median time of the repeats in seconds, each from when all ranks are there until the last one has
/// the sum. Two warm-up runs do not count.

#define OMPI_SKIP_MPICXX 1  // only the C interface is used
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long long bytes = argc == 3 ? std::atoll(argv[1]) : 0;
  const int repeats = argc == 3 ? std::atoi(argv[2]) : 0;
  if (bytes < 4 || bytes > (1LL << 32) || repeats < 1) {
    if (rank == 0) std::fprintf(stderr, "usage: mpirun -n RANKS param_sync-mpi BYTES REPEATS\n");
    MPI_Finalize();
    return 2;
  }
  const auto count = static_cast<std::size_t>(bytes) / sizeof(float);
  std::vector<float> data(count, 1), sum(count);
  std::vector<double> times;
  for (int i = -2; i < repeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(data.data(), sum.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double own = MPI_Wtime() - start;
    double slowest = 0;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 0) times.push_back(slowest);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("%.9f\n", times[times.size() / 2]);
  MPI_Finalize();
  return 0;
}
