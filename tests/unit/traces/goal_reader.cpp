#include "goal_reader.hpp"

#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

namespace traces_test {
namespace {

class Reader {
 public:
  std::vector<GoalRank> read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && !take(line)) throw std::runtime_error("not GOAL: " + line);
    }
    if (is_open_ || ranks_.size() != ranks_announced_) throw std::runtime_error("not GOAL: the end is missing");
    return std::move(ranks_);
  }

 private:
  bool take(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
    const std::string& first = words.at(0);
    if (first == "num_ranks" && words.size() == 2) {
      ranks_announced_ = std::stoul(words[1]);
      return ranks_.empty();
    }
    if (first == "rank" && words.size() == 3 && words[2] == "{") {
      if (is_open_ || std::stoul(words[1]) != ranks_.size()) return false;
      ranks_.emplace_back();
      labels_.clear();
      return is_open_ = true;
    }
    if (!is_open_) return false;
    if (line == "}") return !(is_open_ = false);
    if (first.back() == ':') return take_op(first.substr(0, first.size() - 1), words);
    return words.size() == 3 && take_dependency(words[0], words[1], words[2]);
  }

  /// "l1: calc 100 cpu 1", "l2: send 1024b to 3 tag 7 cpu 1", "l3: recv 1024b from 0 tag 7 cpu 0".
  bool take_op(const std::string& label, const std::vector<std::string>& words) {
    GoalOp op;
    op.what = words.at(1);
    op.size = std::stoull(words.at(2));
    std::size_t next = 3;
    if (op.what == "send" || op.what == "recv") {
      if (words[2].back() != 'b' || words.at(3) != (op.what == "send" ? "to" : "from") || words.at(5) != "tag")
        return false;
      op.peer = std::stoi(words[4]);
      op.tag = std::stoull(words.at(6));
      next = 7;
    } else if (op.what != "calc") {
      return false;
    }
    if (next < words.size()) {
      if (words[next] != "cpu") return false;
      op.cpu = std::stoi(words.at(next + 1));
      next += 2;
    }
    ranks_.back().push_back(std::move(op));
    return next == words.size() && labels_.try_emplace(label, ranks_.back().size() - 1).second;
  }

  bool take_dependency(const std::string& waiting, const std::string& verb, const std::string& before) {
    const auto op = labels_.find(waiting), other = labels_.find(before);
    if (op == labels_.end() || other == labels_.end() || (verb != "requires" && verb != "irequires")) return false;
    GoalOp& last = ranks_.back()[op->second];
    (verb == "irequires" ? last.started : last.ended).push_back(other->second);
    return true;
  }

  std::size_t ranks_announced_ = 0;
  bool is_open_ = false;  // in a rank's block
  std::vector<GoalRank> ranks_;
  std::map<std::string, std::size_t> labels_;  // of this rank
};

}  // namespace

std::vector<GoalRank> read_goal(const std::string& text) { return Reader().read(text); }

}  // namespace traces_test
