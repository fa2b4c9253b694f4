#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/comm/decorators.h"

namespace apus::comm {
namespace {

constexpr size_t kKinds = static_cast<size_t>(OpKind::kBarrier) + 1;

class RingCommLog final : public CommLog {
 public:
  explicit RingCommLog(size_t capacity) : capacity_(capacity) {}

  void add(const OpRecord& record) override {
    const std::lock_guard lock(mutex_);
    Total& total = totals_[static_cast<size_t>(record.info.kind)];
    ++total.count;
    total.bytes += record.info.payload_bytes;
    if (records_.size() == capacity_) records_.pop_front();
    records_.push_back(record);
  }
  std::vector<OpRecord> records() const override {
    const std::lock_guard lock(mutex_);
    return {records_.begin(), records_.end()};
  }
  int64_t count(OpKind kind) const override { return total(kind).count; }
  int64_t bytes(OpKind kind) const override { return total(kind).bytes; }
  void clear() override {
    const std::lock_guard lock(mutex_);
    records_.clear();
    totals_ = {};
  }

 private:
  struct Total {
    int64_t count = 0;
    int64_t bytes = 0;
  };

  Total total(OpKind kind) const {
    const std::lock_guard lock(mutex_);
    return totals_[static_cast<size_t>(kind)];
  }

  size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<OpRecord> records_;
  std::array<Total, kKinds> totals_{};
};

class RecordedCommunicator final : public DecoratedCommunicator {
 public:
  RecordedCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<CommLog> log,
                       std::shared_ptr<Logger> logger)
      : DecoratedCommunicator(std::move(inner)), log_(std::move(log)), logger_(std::move(logger)) {}

  void abort(const std::string& reason) noexcept override {
    inner().abort(reason);
    if (logger_ != nullptr)
      logger_->info("last operations before the abort (" + reason + "):\n" + log_->text());
  }

 protected:
  std::shared_ptr<Work> intercept(const OpInfo& info, const Launch& launch) override {
    log_->add({.group = name(), .rank = rank(), .info = info});
    return launch();
  }
  std::unique_ptr<Communicator> decorate(std::shared_ptr<Communicator> inner) const override {
    return make_recorded_communicator(std::move(inner), log_, logger_);
  }

 private:
  std::shared_ptr<CommLog> log_;
  std::shared_ptr<Logger> logger_;
};

}  // namespace

CommLog::~CommLog() = default;

std::shared_ptr<CommLog> CommLog::create(size_t capacity) {
  APUS_CHECK(capacity > 0, ConfigError, "a communication log keeps at least one operation, got 0");
  return std::make_shared<RingCommLog>(capacity);
}

std::string CommLog::text() const {
  std::string result;
  for (const OpRecord& record : records()) {
    result += detail::concat(record.group, " rank ", record.rank, ": ", record.info.text(), ", ",
                             record.info.payload_bytes, " bytes\n");
  }
  return result;
}

std::unique_ptr<Communicator> make_recorded_communicator(std::shared_ptr<Communicator> inner,
                                                         std::shared_ptr<CommLog> log,
                                                         std::shared_ptr<Logger> logger) {
  APUS_CHECK(log != nullptr, ConfigError, "a recorded communicator needs a log");
  return std::make_unique<RecordedCommunicator>(std::move(inner), std::move(log), std::move(logger));
}

}  // namespace apus::comm
