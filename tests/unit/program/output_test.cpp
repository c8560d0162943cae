// A file of results is complete, or it is not there.
#include "program/run.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;
using gpusock::test::error_of;

class Output : public ::testing::Test {
 protected:
  Output() : folder_(fs::temp_directory_path() / ("output_test." + std::to_string(getpid()))) {
    fs::create_directory(folder_);
  }
  ~Output() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string file() const { return (folder_ / "file").string(); }

  fs::path folder_;
};

/// No file of this process may become larger: as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes_max) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes_max, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);  // so that write() fails
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(Output, AFileHasTheText) {
  gpusock::program::write_file(file(), "text");
  std::string text;
  std::getline(std::ifstream(file()), text);
  EXPECT_EQ(text, "text");
}

TEST_F(Output, PartOfATextIsRemoved) {
  std::string error;
  {
    const FullDisk disk(100'000);
    error = error_of([&] { gpusock::program::write_file(file(), std::string(1'000'000, 'x')); });
  }
  EXPECT_NE(error.find("cannot write " + file()), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Output, AFileThatWasThereStays) {
  std::ofstream(file()) << "the run before";
  {
    const FullDisk disk(100'000);
    EXPECT_NE(error_of([&] { gpusock::program::write_file(file(), std::string(1'000'000, 'x')); }), "");
  }
  EXPECT_TRUE(fs::exists(file()));  // its name may be a link, or a device: only files that were made are removed
}

}  // namespace
