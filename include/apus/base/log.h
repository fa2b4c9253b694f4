#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/api.h"

namespace apus {

/// How much a line matters; a logger drops what lies below its own level.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Where apus says something. The library never prints by itself: whoever embeds it passes a Logger.
/// Implementations are called from several threads at once and must not throw.
class APUS_API Logger {
 public:
  virtual ~Logger();

  /// Takes one message, without a line end.
  virtual void log(LogLevel level, std::string_view message) = 0;

  /// Details for whoever looks for a fault.
  void debug(std::string_view message) { log(LogLevel::kDebug, message); }
  /// What a user reads while the run goes well.
  void info(std::string_view message) { log(LogLevel::kInfo, message); }
  /// Something is not as the user may think; the run goes on.
  void warning(std::string_view message) { log(LogLevel::kWarning, message); }
  /// Something failed; an exception usually follows.
  void error(std::string_view message) { log(LogLevel::kError, message); }
};

/// Drops everything.
class APUS_API NullLogger final : public Logger {
 public:
  /// Does nothing.
  void log(LogLevel level, std::string_view message) override;
};

/// Keeps every line in memory, for tests and for hosts that show the log themselves. Thread-safe.
class APUS_API CaptureLogger final : public Logger {
 public:
  /// Appends the line.
  void log(LogLevel level, std::string_view message) override;

  /// A copy of all lines so far, in order of arrival.
  std::vector<std::pair<LogLevel, std::string>> lines() const;
  /// Whether any line holds `part`.
  bool contains(std::string_view part) const;
  /// How many lines hold `part`.
  int count(std::string_view part) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

/// Passes a message on only the first time that its key is seen; for warnings that would repeat each step.
/// Thread-safe.
class APUS_API OnceLogger {
 public:
  /// `logger` receives what is passed on.
  explicit OnceLogger(std::shared_ptr<Logger> logger);

  /// Returns whether the message was passed on.
  bool log(LogLevel level, const std::string& key, std::string_view message);
  /// `log` at level warning.
  bool warning(const std::string& key, std::string_view message);
  /// `log` at level info.
  bool info(const std::string& key, std::string_view message);

 private:
  std::shared_ptr<Logger> logger_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

/// Which stream of the process the console logger writes to.
enum class ConsoleStream { kStdout, kStderr };

/// How the console logger behaves.
struct ConsoleLoggerOptions {
  /// Lines below it are dropped.
  LogLevel level = LogLevel::kInfo;
  /// Where lines go.
  ConsoleStream stream = ConsoleStream::kStderr;
  /// Put before every line, e.g. "[rank 3] "; empty for none.
  std::string prefix = {};
};

/// A logger that writes plain lines to the console: information as it is, the rest behind "debug: ",
/// "warning: " or "error: ". Each line is flushed at once.
APUS_API std::shared_ptr<Logger> make_console_logger(const ConsoleLoggerOptions& options = {});

}  // namespace apus
