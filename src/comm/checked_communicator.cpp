#include <map>
#include <set>
#include <thread>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "comm/backoff.h"
#include "comm/report_text.h"

namespace apus::comm {
namespace {

/// What all ranks must say alike: operation, dtype, count (an all_to_all_v has others on each rank), root.
std::string signature(const OpInfo& info) {
  std::string text(op_name(info.kind));
  if (!info.dtype.empty()) text += " " + info.dtype;
  if (!info.dtype.empty() && info.kind != OpKind::kAllToAllV) {
    int64_t count = 1;
    for (int64_t size : info.shape) count *= size;
    text += detail::concat(" x ", count);
  }
  return info.detail.empty() ? text : text + " (" + info.detail + ")";
}

class CheckedCommunicator final : public DecoratedCommunicator {
 public:
  CheckedCommunicator(std::shared_ptr<Communicator> inner, CheckedOptions options)
      : DecoratedCommunicator(std::move(inner)), options_(options) {}

 protected:
  std::shared_ptr<Work> intercept(const OpInfo& info, const Launch& launch) override {
    if (info.kind != OpKind::kSendRecv && size() > 1 && store() != nullptr) agree_on(info);
    return launch();
  }
  std::unique_ptr<Communicator> decorate(std::shared_ptr<Communicator> inner) const override {
    return make_checked_communicator(std::move(inner), options_);
  }

 private:
  // Point-to-point operations have other numbers on each rank, so checks are counted apart.
  std::string key(int64_t check, int rank) const { return detail::concat("checked/", check, "/", rank); }

  void agree_on(const OpInfo& info) {
    const std::shared_ptr<Store> keys = store();
    const int64_t check = ++checks_;
    keys->set(key(check, rank()), signature(info));
    // Everybody who has written the check before this one has read the one before that.
    if (check > 2) keys->delete_key(key(check - 2, rank()));
    std::vector<std::string> wanted;
    for (int r = 0; r < size(); ++r) wanted.push_back(key(check, r));
    const Backoff backoff(options_.timeout);
    while (!keys->check(wanted)) {
      inner().check_running();
      if (!backoff.pause()) fail(info, absent_text(missing_ranks(*keys, wanted), info));
    }
    std::map<std::string, std::vector<int>> said;
    for (int r = 0; r < size(); ++r) said[keys->try_get(key(check, r)).value_or("")].push_back(r);
    if (said.size() > 1) fail(info, mismatch_text(said, info));
  }

  std::string absent_text(const std::string& absent, const OpInfo& info) const {
    return detail::concat("after ", options_.timeout.count() / 1000.0, " s rank ", absent,
                          " has not come to ", op_name(info.kind), " #", info.sequence, " of ", name());
  }

  /// "rank 3 is in reduce_scatter float x 8 #118 of dp, others in all_gather float x 8 #118"
  std::string mismatch_text(const std::map<std::string, std::vector<int>>& said, const OpInfo& info) const {
    auto largest = said.begin();
    for (auto it = said.begin(); it != said.end(); ++it) {
      if (it->second.size() > largest->second.size()) largest = it;
    }
    std::string text;
    for (auto it = said.begin(); it != said.end(); ++it) {
      if (it == largest) continue;
      for (int r : it->second) {
        append_item(text,
                    detail::concat("rank ", r, " is in ", it->first, " #", info.sequence, " of ", name()));
      }
    }
    return detail::concat(text, ", others in ", largest->first, " #", info.sequence);
  }

  [[noreturn]] void fail(const OpInfo& info, const std::string& reason) {
    inner().abort(reason);
    throw CommError(
        {.group = name(), .operation = std::string(op_name(info.kind)), .sequence = info.sequence}, reason);
  }

  CheckedOptions options_;
  int64_t checks_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_checked_communicator(std::shared_ptr<Communicator> inner,
                                                        const CheckedOptions& options) {
  return std::make_unique<CheckedCommunicator>(std::move(inner), options);
}

}  // namespace apus::comm
