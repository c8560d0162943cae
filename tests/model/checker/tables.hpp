#pragma once
/// @file The ordering tables in the headers' comments, and the lines of code that name their rows: do they say the
/// same.

#include "site.hpp"

#include <map>
#include <string>
#include <vector>

namespace gpusock::model {

/// One row of a table: "/// T1  caller: store requests  release  T2  ...".
struct Row {
  std::string label;
  std::string file;
  std::string operation;
  std::string orders;  ///< as written: "release", "acq_rel, acquire"
};

class Tables {
 public:
  /// Reads the project's sources. Throws std::runtime_error where they are not there.
  explicit Tables(const std::string& source_folder);

  const std::vector<Row>& rows() const { return rows_; }
  const Row* row(const std::string& label) const;

  /// The label that stands in a comment at this line of code; empty: none.
  std::string label_of(const Site& site) const;
  /// The line itself, without what surrounds it.
  std::string text_of(const Site& site) const;
  /// "ringbuf/byte_ring.hpp:98".
  std::string source_of(const Site& site) const;

  /// What the tables, the comments and what was reached say differently: one text each. `unchecked`: files whose
  /// accesses no case reaches.
  std::vector<std::string> differences(const std::vector<std::string>& unchecked) const;

 private:
  using Lines = std::vector<std::string>;

  void read_folder(const std::string& folder);
  void read_rows(const std::string& file, const Lines& lines);
  const Lines* lines_of(const Site& site, std::string& file) const;
  std::pair<std::size_t, std::size_t> statement_at(const Lines& lines, std::size_t line) const;

  std::string source_folder_;
  std::map<std::string, Lines> files_;  // by path from the project's folder
  std::vector<Row> rows_;
};

}  // namespace gpusock::model
