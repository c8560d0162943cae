#pragma once
/// @file The training and test samples of a data set, in MNIST's four files or in a table, and the order in which they
/// are visited.

#include "layout/sample_shape.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace param_sync {

/// Images as bytes, or rows of numbers, with one label each.
struct Samples {
  std::uint32_t rows = 0;            ///< of an image; 1 for a row of numbers
  std::uint32_t columns = 0;         ///< of an image, or numbers of a row
  std::vector<std::uint8_t> images;  ///< image after image; or none
  std::vector<std::uint8_t> labels;  ///< all below Dataset::classes
  std::vector<float> values = {};    ///< row of numbers after row; or none

  std::size_t count() const { return labels.size(); }
  std::uint32_t pixels() const { return rows * columns; }  ///< of a sample
};

struct Dataset {
  Samples train;
  Samples test;
  std::uint32_t classes = 0;

  /// A number that differs if images, rows or labels differ. Nodes compare it.
  std::uint64_t fingerprint() const;
};

/// The sizes from which a run is planned.
struct DatasetShape {
  std::size_t samples = 0;  ///< for training
  SampleShape sample;
};
DatasetShape shape_of(const Dataset& data);

/// Returns the shape of what load_dataset() would load, without reading the images. Throws gpusock::Error, also if a
/// file can be read only once, such as a pipe.
DatasetShape read_dataset_shape(const std::filesystem::path& at, std::size_t train_limit);

/// Loads MNIST's four files (plain or .gz) if `at` is a folder, and read_table() if it is a file. Keeps the first
/// `train_limit` training samples, 0 for all. Throws gpusock::Error, which says which file is wrong, what was expected,
/// and what to do.
///
/// Of a table a fifth of the rows is for testing. A fixed order, which depends on their number alone, says which. Each
/// column is shifted and scaled so that its mean over the rows for training is 0, and its deviation 1.
Dataset load_dataset(const std::filesystem::path& at, std::size_t train_limit);

/// Returns the samples that `rank` visits in `epoch`, step after step, `batch` in each: its part of a permutation that
/// all nodes share. Samples that do not fill a step of all nodes are left out.
std::vector<std::uint32_t> visiting_order(std::size_t samples, std::uint64_t seed, std::uint32_t epoch, int rank,
                                          int nodes, std::uint32_t batch);

}  // namespace param_sync
