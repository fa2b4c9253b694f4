#include "apus/comm/store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "apus/base/error.h"
#include "comm/backoff.h"

namespace apus::comm {
namespace {

/// "'a', 'b' and 7 more": the keys of `keys` that are not there.
std::string missing_keys(Store& store, const std::vector<std::string>& keys) {
  constexpr size_t kShown = 4;
  std::string text;
  size_t missing = 0;
  for (const std::string& key : keys) {
    if (store.check({key})) continue;
    if (++missing <= kShown) text += (missing > 1 ? ", '" : "'") + key + "'";
  }
  if (missing > kShown) text += detail::concat(" and ", missing - kShown, " more");
  return text;
}

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::optional<std::string> try_get(const std::string& key) override {
    return store_->try_get(prefix_ + key);
  }
  int64_t add(const std::string& key, int64_t delta) override { return store_->add(prefix_ + key, delta); }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }
  bool check(const std::vector<std::string>& keys) override {
    std::vector<std::string> full;
    full.reserve(keys.size());
    for (const std::string& key : keys) full.push_back(prefix_ + key);
    return store_->check(full);
  }

 private:
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace

Store::~Store() = default;

void Store::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  Backoff backoff(timeout);
  while (!check(keys)) {
    if (backoff.pause()) continue;
    throw CommError(
        {.group = "store", .operation = "wait"},
        detail::concat("after ", timeout.count(), " ms still missing: ", missing_keys(*this, keys)));
  }
}

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  wait({key}, timeout);
  std::optional<std::string> value = try_get(key);
  if (!value) throw CommError({.group = "store", .operation = "get"}, "key '" + key + "' was removed");
  return *std::move(value);
}

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  APUS_CHECK(store != nullptr, ConfigError, "a prefix store needs a store under it");
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace apus::comm
