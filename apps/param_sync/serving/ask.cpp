#include "serving/commands.hpp"

#include "data/dataset.hpp"
#include "serving/wire.hpp"
#include "settings/config.hpp"

#include "gpusock/endpoint.hpp"
#include "gpusock/error.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

namespace param_sync::serving {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(30);  // for any answer
constexpr std::uint32_t kClassesMax = 1 << 16;

struct AskSettings {
  std::string where;
  std::string data;
  std::uint64_t requests = 0;  ///< 0: each test image once
  unsigned connections = 16;
  double rate = 0;  ///< requests a second; 0: as fast as answers come
  std::string json_file;
};

/// What the answers say.
struct Answers {
  std::vector<double> latencies_ms;      ///< of those with scores
  std::map<int, std::uint64_t> refused;  ///< by errno
  std::uint64_t right = 0;
  std::uint64_t oldest = ~std::uint64_t{0}, newest = 0;  ///< versions
  std::uint64_t age_us_max = 0;
  double seconds = 0;
};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }

 private:
  int number_;
};

/// One connection, with at most one request.
struct Connection {
  explicit Connection(int number) : socket(number) {}

  Descriptor socket;
  bool is_busy = false;
  std::uint64_t request = 0;
  SteadyClock::time_point asked;  ///< when the request was due
  std::vector<char> out, in;      ///< what is still to be sent, and what has come
};

/// Connects. Throws gpusock::Error.
int connected_to(const gpusock::Endpoint& at, const std::string& where) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  const std::string text = at.host_port();
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  if (getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found) != 0) {
    throw gpusock::Error(EINVAL, "connecting to " + where);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw gpusock::Error(errno, "connecting to " + where);
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (::connect(socket, found->ai_addr, found->ai_addrlen) == 0) return socket;
  const int error = errno;
  ::close(socket);
  using gpusock::program::Attempt;
  throw gpusock::program::SocketFailure("connecting to " + where, Attempt::connecting, error, at);
}

class Asking {
 public:
  Asking(const AskSettings& settings, const Samples& images) : settings_(settings), images_(images) {
    const gpusock::Endpoint at = gpusock::Endpoint::parse(settings.where);
    for (unsigned i = 0; i < settings.connections; ++i) {
      connections_.push_back(std::make_unique<Connection>(connected_to(at, settings.where)));
    }
  }

  Answers ask() {
    began_ = progress_ = SteadyClock::now();
    std::vector<pollfd> polled(connections_.size());
    while (done_ < settings_.requests) {
      give_requests();
      for (std::size_t i = 0; i < polled.size(); ++i) {
        const Connection& one = *connections_[i];
        polled[i] = {*one.socket, static_cast<short>(POLLIN | (one.out.empty() ? 0 : POLLOUT)), 0};
      }
      const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(next_look() - SteadyClock::now());
      const timespec limit{std::max<long>(0, wait.count() / 1'000'000'000),
                           std::max<long>(0, wait.count() % 1'000'000'000)};
      if (::ppoll(polled.data(), polled.size(), &limit, nullptr) < 0 && errno != EINTR) {
        throw gpusock::Error(errno, "waiting for answers");
      }
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (polled[i].revents != 0) serve(*connections_[i]);
      }
      if (SteadyClock::now() - progress_ > kPatience && done_ < given_) {
        throw gpusock::Error(
            ETIMEDOUT, fmt::format("{}: no answer for {} s; {} --connections may be more than the server's --clients",
                                   settings_.where, kPatience.count(), settings_.connections));
      }
    }
    answers_.seconds = std::chrono::duration<double>(SteadyClock::now() - began_).count();
    return std::move(answers_);
  }

 private:
  SteadyClock::time_point due(std::uint64_t request) const {
    if (settings_.rate == 0) return began_;
    const std::chrono::duration<double> after(static_cast<double>(request) / settings_.rate);
    return began_ + std::chrono::duration_cast<SteadyClock::duration>(after);
  }

  bool has_idle() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const auto& one) { return !one->is_busy; });
  }

  /// When to look again even if nothing comes.
  SteadyClock::time_point next_look() const {
    const auto patient = SteadyClock::now() + kPatience;
    return given_ < settings_.requests && has_idle() ? std::min(patient, due(given_)) : patient;
  }

  /// Gives the requests that are due to connections that have none. A request's time counts from when it was due, also
  /// if it has waited for a connection here: else a slow server would slow down its own measurement.
  void give_requests() {
    for (const auto& one : connections_) {
      const auto now = SteadyClock::now();
      if (given_ == settings_.requests || due(given_) > now) return;
      if (one->is_busy) continue;
      one->is_busy = true;
      one->request = given_;
      one->asked = settings_.rate == 0 ? now : due(given_);
      ++given_;
      const AskHead head{kAskMagic, static_cast<std::uint32_t>(one->request)};
      const std::size_t pixels = images_.pixels();
      one->out.resize(sizeof head + pixels);
      std::memcpy(one->out.data(), &head, sizeof head);
      std::memcpy(one->out.data() + sizeof head, images_.images.data() + one->request % images_.count() * pixels,
                  pixels);
      send(*one);
    }
  }

  void send(Connection& one) {
    const ssize_t sent = ::send(*one.socket, one.out.data(), one.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      one.out.erase(one.out.begin(), one.out.begin() + sent);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      throw gpusock::Error(errno, settings_.where + " has ended a connection");
    }
  }

  void serve(Connection& one) {
    if (!one.out.empty()) send(one);
    char piece[4096];
    const ssize_t got = ::recv(*one.socket, piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) throw gpusock::Error(got == 0 ? ECONNRESET : errno, settings_.where + " has ended a connection");
    progress_ = SteadyClock::now();
    one.in.insert(one.in.end(), piece, piece + got);
    AnswerHead head;
    if (one.in.size() < sizeof head) return;
    std::memcpy(&head, one.in.data(), sizeof head);
    if (!one.is_busy || head.id != static_cast<std::uint32_t>(one.request) || head.classes > kClassesMax) {
      throw gpusock::Error(EPROTO, settings_.where + " gives answers that are none: is it param_sync serve?");
    }
    if (one.in.size() < sizeof head + head.classes * sizeof(float)) return;
    take(one, head);
    one.in.clear();
    one.is_busy = false;
    ++done_;
  }

  void take(const Connection& one, const AnswerHead& head) {
    if (head.error == EPROTO) {
      throw gpusock::Error(EPROTO, settings_.where + " takes other images: give the --data that it was given");
    }
    if (head.error != 0) {
      ++answers_.refused[head.error];
      return;
    }
    answers_.latencies_ms.push_back(std::chrono::duration<double, std::milli>(progress_ - one.asked).count());
    if (head.label == images_.labels[one.request % images_.count()]) ++answers_.right;
    answers_.oldest = std::min(answers_.oldest, head.version);
    answers_.newest = std::max(answers_.newest, head.version);
    answers_.age_us_max = std::max(answers_.age_us_max, head.age_us);
  }

  const AskSettings& settings_;
  const Samples& images_;
  std::vector<std::unique_ptr<Connection>> connections_;
  SteadyClock::time_point began_, progress_;
  std::uint64_t given_ = 0, done_ = 0;
  Answers answers_;
};

/// The latency that a share of the answers does not exceed. `sorted` is not empty.
double percentile(const std::vector<double>& sorted, double share) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

nlohmann::json to_json(const Answers& answers) {
  nlohmann::json all = {{"answered", answers.latencies_ms.size()}, {"seconds", answers.seconds}};
  all["refused"] = nlohmann::json::object();
  for (const auto& [error, count] : answers.refused) all["refused"][std::to_string(error)] = count;
  if (answers.latencies_ms.empty()) return all;
  const auto count = static_cast<double>(answers.latencies_ms.size());
  all["answers_per_s"] = count / answers.seconds;
  all["accuracy"] = static_cast<double>(answers.right) / count;
  for (const auto& [name, share] : {std::pair{"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"p999_ms", 0.999}}) {
    all[name] = percentile(answers.latencies_ms, share);
  }
  all["max_ms"] = answers.latencies_ms.back();
  all["oldest_version"] = answers.oldest;
  all["newest_version"] = answers.newest;
  all["age_ms_max"] = static_cast<double>(answers.age_us_max) * 1e-3;
  return all;
}

std::string why_refused(int error) {
  if (error == EAGAIN) return "the server has no weights yet";
  if (error == ETIMEDOUT) return "the answers would have been late (--objective-ms)";
  if (error == ESTALE) return "the weights were too old (--stale-ms)";
  return std::generic_category().message(error);
}

std::string summary_of(const Answers& answers) {
  std::string all = fmt::format("{} answers in {:.2f} s, {:.0f} a second", answers.latencies_ms.size(), answers.seconds,
                                static_cast<double>(answers.latencies_ms.size()) / answers.seconds);
  for (const auto& [error, count] : answers.refused) {
    all += fmt::format("; {} refused: {}", count, why_refused(error));
  }
  if (answers.latencies_ms.empty()) return all + "\n";
  const std::vector<double>& sorted = answers.latencies_ms;
  all += fmt::format("\nms: median {:.3f}, p90 {:.3f}, p99 {:.3f}, p99.9 {:.3f}, longest {:.3f}\n",
                     percentile(sorted, 0.5), percentile(sorted, 0.9), percentile(sorted, 0.99),
                     percentile(sorted, 0.999), sorted.back());
  all += fmt::format("right {:.2f} %; weights after {} to {} steps, at most {:.1f} ms old\n",
                     100.0 * static_cast<double>(answers.right) / static_cast<double>(sorted.size()), answers.oldest,
                     answers.newest, static_cast<double>(answers.age_us_max) * 1e-3);
  return all;
}

int run(AskSettings settings) {
  std::optional<gpusock::program::JsonOutput> json;
  if (!settings.json_file.empty()) json.emplace(settings.json_file);
  const Dataset data = load_dataset(settings.data, 0);
  if (data.test.images.empty()) throw gpusock::Error(EINVAL, "--data " + settings.data + " has no images");
  if (settings.requests == 0) settings.requests = data.test.count();
  Answers answers = Asking(settings, data.test).ask();
  std::sort(answers.latencies_ms.begin(), answers.latencies_ms.end());
  gpusock::program::print(summary_of(answers));
  if (json) {
    json->write(to_json(answers).dump(2) + '\n');
    json->close();
  }
  return answers.latencies_ms.empty() ? 1 : 0;
}

}  // namespace

int ask_command(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Sends test images to param_sync serve, and says how fast the answers come, and how many are right.",
      "Exit status: 0 some answers have scores, 1 none has, or the connection was lost, 2 misuse.");
  AskSettings settings{.where = {}, .data = Config{}.data, .json_file = {}};
  arguments.positional("ENDPOINT", settings.where, "HOST:PORT of param_sync serve");
  arguments.text("--data", settings.data, "The data set whose test images are sent");
  arguments.number("--requests", settings.requests, "How many; images repeat if they are fewer", 1, 1'000'000'000)
      .shown_default("each test image once");
  arguments.number("--connections", settings.connections, "Connections, each with one request at a time", 1, 1000);
  arguments
      .number("--rate", settings.rate,
              "Requests a second, whether or not answers come; a request that waits for a connection counts from when "
              "it was due",
              0.0, 1e7)
      .shown_default("each connection asks when it has its answer");
  arguments.json(settings.json_file, "The results as JSON");
  arguments.check([&]() -> std::string {
    try {
      const gpusock::Endpoint at = gpusock::Endpoint::parse(settings.where);
      const bool has_link = settings.where.find(",link=") != std::string::npos;
      if (has_link && !at.is_plain_tcp())
        return settings.where + ": param_sync serve speaks plain TCP: leave out link=";
      return at.port != 0 ? "" : settings.where + " has no port";
    } catch (const gpusock::Error& error) {
      return error.code().value() == EINVAL ? error.what() : "";
    }
  });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("param_sync ask", [&] { return run(std::move(settings)); });
}

}  // namespace param_sync::serving
