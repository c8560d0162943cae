#include "program/run.hpp"

#include "gpusock/error.hpp"
#include "program/arguments.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <system_error>

namespace gpusock::program {
namespace {

void tell(const std::string& program, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), what.c_str());
}

/// The errno of the first write that failed. The text of that write is lost, so a later flush may succeed and not
/// report the error.
std::atomic<int> first_error{0};

/// True: standard output has JSON, and print() does not write there.
std::atomic<bool> output_is_json{false};

bool note_error() {
  int none = 0;
  first_error.compare_exchange_strong(none, errno);
  return false;
}

/// Some file systems report only on close that there was no room. Closing a copy of the descriptor gives the error that
/// closing standard output would give.
bool copy_closes_well() {
  const int copy = dup(STDOUT_FILENO);
  return copy < 0 || close(copy) == 0 || note_error();
}

}  // namespace

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), output_is_json ? stderr : stdout) != text.size()) note_error();
}

JsonOutput::JsonOutput(const std::string& file) : name_(file) {
  output_is_json = output_is_json || file == "-";
  if (file == "-") return;
  std::error_code unknown;
  is_new_ = std::filesystem::symlink_status(file, unknown).type() == std::filesystem::file_type::not_found;
  errno = 0;
  file_.open(file, std::ios::binary | std::ios::app);
  require_file();
}

JsonOutput::~JsonOutput() {
  std::error_code ignored;
  if (is_new_ && is_empty_) std::filesystem::remove(name_, ignored);
}

void JsonOutput::require_file() {
  if (!file_) throw Error(errno != 0 ? errno : EIO, "cannot write " + name_);
}

void JsonOutput::close() {
  errno = 0;
  if (file_.is_open()) file_.close();
  require_file();
}

void write_file(const std::string& file, const std::string& text) {
  JsonOutput out(file);
  out.write(text);
  out.close();
}

void JsonOutput::write(const std::string& text) {
  std::error_code unknown;
  if (is_empty_ && file_.is_open() && std::filesystem::is_regular_file(name_, unknown)) {
    std::filesystem::resize_file(name_, 0);
  }
  errno = 0;
  if (file_.is_open()) {
    file_ << text << std::flush;
    require_file();
  } else {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_error();
    if (!flush_output()) throw OutputError();
  }
  is_empty_ = false;  // not if it has thrown: part of a text is of no use
}

bool flush_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  return (flushed && std::ferror(stdout) == 0 && std::cout.good()) || note_error();
}

void print_now(const std::string& text) {
  print(text);
  if (!flush_output()) throw OutputError();
}

int check_output(const std::string& program, int status) {
  if (flush_output() && copy_closes_well()) return status;
  const int error = first_error;  // 0 if the output that failed was not written by this file's functions
  tell(program, OutputError().what() + (error == 0 ? std::string() : ": " + describe_errno(error)));
  return status == kSuccess ? kFailure : status;
}

int run(const std::string& program, const std::function<int()>& work) {
  int status = kFailure;
  try {
    status = work();
  } catch (const OutputError&) {  // check_output() reports it
  } catch (const Misuse& misuse) {
    tell(program, misuse.what());
    status = kMisuse;
  } catch (const std::exception& error) {
    tell(program, error.what());
  }
  return check_output(program, status);
}

}  // namespace gpusock::program
