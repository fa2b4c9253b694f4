#include "apus/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace apus {
namespace {

std::string_view level_prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::sink_ptr make_sink(ConsoleStream stream) {
  if (stream == ConsoleStream::kStdout) return std::make_shared<spdlog::sinks::stdout_sink_mt>();
  return std::make_shared<spdlog::sinks::stderr_sink_mt>();
}

class ConsoleLogger final : public Logger {
 public:
  explicit ConsoleLogger(const ConsoleLoggerOptions& options)
      : prefix_(options.prefix), logger_("apus", make_sink(options.stream)) {
    logger_.set_pattern("%v");
    logger_.set_level(spdlog_level(options.level));
    logger_.flush_on(spdlog::level::trace);
  }

  void log(LogLevel level, std::string_view message) override {
    logger_.log(spdlog_level(level), fmt::string_view("{}{}{}"), prefix_, level_prefix(level), message);
  }

 private:
  std::string prefix_;
  spdlog::logger logger_;
};

}  // namespace

Logger::~Logger() = default;

void NullLogger::log(LogLevel, std::string_view) {}

void CaptureLogger::log(LogLevel level, std::string_view message) {
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(level, message);
}

std::vector<std::pair<LogLevel, std::string>> CaptureLogger::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

bool CaptureLogger::contains(std::string_view part) const {
  return count(part) > 0;
}

int CaptureLogger::count(std::string_view part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(
      lines_, [part](const auto& line) { return line.second.find(part) != std::string::npos; }));
}

OnceLogger::OnceLogger(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}

bool OnceLogger::log(LogLevel level, const std::string& key, std::string_view message) {
  {
    const std::lock_guard lock(mutex_);
    if (!seen_.insert(key).second) return false;
  }
  logger_->log(level, message);
  return true;
}

bool OnceLogger::warning(const std::string& key, std::string_view message) {
  return log(LogLevel::kWarning, key, message);
}

bool OnceLogger::info(const std::string& key, std::string_view message) {
  return log(LogLevel::kInfo, key, message);
}

std::shared_ptr<Logger> make_console_logger(const ConsoleLoggerOptions& options) {
  return std::make_shared<ConsoleLogger>(options);
}

}  // namespace apus
