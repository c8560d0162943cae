#include "data/dataset.hpp"

#include "data/gzip_reader.hpp"
#include "data/idx.hpp"
#include "data/table.hpp"
#include "param_sync/wire/hash.hpp"
#include "layout/random.hpp"
#include "gpusock/gpusock.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace param_sync {
namespace {

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& name) {
  for (const auto& candidate : {folder / (name + ".gz"), folder / name}) {
    std::error_code error;
    if (std::filesystem::exists(candidate, error)) return candidate;
    if (error) {  // the file may exist: the folder cannot be searched or read
      throw gpusock::Error(error.value(), "looking for " + candidate.string() +
                                              ": let this user read the folder (ls -ld shows who may), or name another "
                                              "with --data");
    }
  }
  throw gpusock::Error(ENOENT,
                       "no " + name + " or " + name + ".gz in " + folder.string() +
                           ": install it (Debian: apt-get install dataset-fashion-mnist), or name a folder that holds "
                           "MNIST's four files with --data");
}

/// `limit`: how many images are needed; 0: all. Labels are all read, as they tell how many classes there are.
Samples load_samples(const std::filesystem::path& folder, const std::string& prefix, std::size_t limit) {
  const auto image_file = find_file(folder, prefix + "-images-idx3-ubyte");
  const auto label_file = find_file(folder, prefix + "-labels-idx1-ubyte");
  IdxArray images = read_idx(image_file, 3, limit);
  IdxArray labels = read_idx(label_file, 1);
  if (images.items() != labels.items()) {
    throw gpusock::Error(EINVAL, image_file.string() + " holds " + std::to_string(images.items()) + " images, but " +
                                     label_file.string() + " " + std::to_string(labels.items()) +
                                     " labels: take both from the same data set");
  }
  return {images.shape[1], images.shape[2], std::move(images.bytes), std::move(labels.bytes), {}};
}

/// Shifts and scales the columns so that those of `train` have a mean of 0 and a deviation of 1. A column that is the
/// same in all rows for training becomes 0 there.
void standardize(Samples& train, Samples& test) {
  for (std::size_t column = 0; column < train.pixels(); ++column) {
    const auto for_rows = [&](Samples& samples, auto&& call) {
      for (std::size_t at = column; at < samples.values.size(); at += samples.pixels()) call(samples.values[at]);
    };
    double sum = 0, squares = 0;
    for_rows(train, [&](float value) { sum += value; });
    const auto rows = static_cast<double>(train.count());
    const double mean = sum / rows;
    for_rows(train, [&](float value) { squares += (value - mean) * (value - mean); });
    const double deviation = std::sqrt(squares / rows);
    const double scale = deviation > 0 ? 1 / deviation : 1;
    for (Samples* part : {&train, &test}) {
      for_rows(*part, [&](float& value) { value = static_cast<float>((value - mean) * scale); });
    }
  }
}

/// Loads a table, and divides its rows into those for training and those for testing.
Dataset load_table(const std::filesystem::path& file) {
  constexpr std::size_t kShare = 5;  // one in so many is for testing
  constexpr std::uint64_t kSeed = 0x7461626c65;
  const Table table = read_table(file);
  if (table.rows() < kShare) {
    refuse_data(file, "it has " + std::to_string(table.rows()) +
                          " rows, and a fifth of them is for testing: it must have at least 5.");
  }
  std::vector<std::uint32_t> order(table.rows());
  std::iota(order.begin(), order.end(), 0u);
  Random random(kSeed);
  shuffle(order, random);
  std::vector<bool> tests(table.rows());
  for (std::size_t i = 0; i < table.rows() / kShare; ++i) tests[order[i]] = true;
  Dataset data;
  data.classes = static_cast<std::uint32_t>(table.classes.size());
  data.train.rows = data.test.rows = 1;
  data.train.columns = data.test.columns = table.columns;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    Samples& to = tests[row] ? data.test : data.train;
    const auto begin = table.values.begin() + static_cast<std::ptrdiff_t>(row * table.columns);
    to.values.insert(to.values.end(), begin, begin + table.columns);
    to.labels.push_back(table.labels[row]);
  }
  standardize(data.train, data.test);
  return data;
}

Dataset load_images(const std::filesystem::path& folder, std::size_t train_limit) {
  Dataset data{load_samples(folder, "train", train_limit), load_samples(folder, "t10k", 0), 0};
  if (data.train.pixels() != data.test.pixels()) {
    throw gpusock::Error(EINVAL, folder.string() + ": training images have " + std::to_string(data.train.pixels()) +
                                     " pixels, test images " + std::to_string(data.test.pixels()) +
                                     ": take all files from the same data set");
  }
  for (const Samples* part : {&data.train, &data.test}) {
    data.classes = std::max<std::uint32_t>(data.classes,
                                           1u + *std::max_element(part->labels.begin(), part->labels.end()));
  }
  return data;
}

/// True if it is no folder: then it is a table. What does not exist is one if it has the name of one.
bool is_table(const std::filesystem::path& at) {
  std::error_code unknown;
  const std::filesystem::path ends = at.extension();
  if (!std::filesystem::exists(at, unknown)) return ends == ".csv" || ends == ".npy" || ends == ".gz";
  return !std::filesystem::is_directory(at, unknown);
}

/// Finds a file as find_file() does, but only one that can be read more than once.
std::filesystem::path find_regular_file(const std::filesystem::path& folder, const std::string& name) {
  const auto file = find_file(folder, name);
  std::error_code unknown;
  if (std::filesystem::is_regular_file(file, unknown)) return file;
  throw gpusock::Error(ESPIPE, file.string() + " can be read only once");
}

}  // namespace

DatasetShape shape_of(const Dataset& data) {
  return {data.train.count(), {data.train.rows, data.train.columns, data.classes}};
}

DatasetShape read_dataset_shape(const std::filesystem::path& at, std::size_t train_limit) {
  if (is_table(at)) {
    std::error_code unknown;
    if (std::filesystem::is_fifo(at, unknown)) throw gpusock::Error(ESPIPE, at.string() + " can be read only once");
    return shape_of(load_dataset(at, train_limit));
  }
  const std::filesystem::path& folder = at;
  DatasetShape shape;
  for (const std::string prefix : {"t10k", "train"}) {
    const IdxArray labels = read_idx(find_regular_file(folder, prefix + "-labels-idx1-ubyte"), 1);
    shape.samples = labels.items();
    shape.sample.classes = std::max(shape.sample.classes,
                                    1u + *std::max_element(labels.bytes.begin(), labels.bytes.end()));
  }
  const auto images = read_idx_shape(find_regular_file(folder, "train-images-idx3-ubyte"), 3);
  shape.sample.rows = images[1];
  shape.sample.columns = images[2];
  if (train_limit != 0) shape.samples = std::min(shape.samples, train_limit);
  return shape;
}

/// For tens of megabytes of images, zlib's CRC takes a quarter of the time of FNV-1a: 50 ms for Fashion-MNIST.
std::uint64_t Dataset::fingerprint() const {
  std::uint64_t hash = kFnvBasis;
  for (const Samples* part : {&train, &test}) {
    const std::uint64_t images = crc32_z(crc32_z(0, nullptr, 0), part->images.data(), part->images.size());
    hash = fnv1a(&images, sizeof images, hash);
    hash = fnv1a(part->values.data(), part->values.size() * sizeof(float), hash);
    hash = fnv1a(part->labels.data(), part->labels.size(), hash);
  }
  return hash;
}

Dataset load_dataset(const std::filesystem::path& at, std::size_t train_limit) {
  Dataset data = is_table(at) ? load_table(at) : load_images(at, train_limit);
  if (train_limit != 0 && train_limit < data.train.count()) {
    data.train.labels.resize(train_limit);
    data.train.images.resize(data.train.images.empty() ? 0 : train_limit * data.train.pixels());
    data.train.values.resize(data.train.values.empty() ? 0 : train_limit * data.train.pixels());
  }
  return data;
}

std::vector<std::uint32_t> visiting_order(std::size_t samples, std::uint64_t seed, std::uint32_t epoch, int rank,
                                          int nodes, std::uint32_t batch) {
  std::vector<std::uint32_t> all(samples);
  std::iota(all.begin(), all.end(), 0u);
  Random random(seed ^ (0x9e3779b97f4a7c15u * (epoch + 1)));
  shuffle(all, random);

  const std::size_t step_samples = std::size_t{batch} * nodes;
  std::vector<std::uint32_t> mine;
  for (std::size_t step = 0; step < samples / step_samples; ++step) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(step * step_samples + std::size_t{batch} * rank);
    mine.insert(mine.end(), first, first + batch);
  }
  return mine;
}

}  // namespace param_sync
