#include "comm/c10d_store.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "apus/base/error.h"
#include "comm/report_text.h"

namespace apus::comm {
namespace {

/// Throws what c10d throws as a CommError.
template <typename Function>
auto guarded(const char* operation, const std::string& key, Function&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    throw CommError({.group = "store", .operation = operation},
                    detail::concat("key '", key, "': ", first_line(error)));
  }
}

class FromC10d final : public Store {
 public:
  explicit FromC10d(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    guarded("set", key, [&] { store_->set(key, value); });
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return guarded("get", key, [&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      return store_->get_to_str(key);
    });
  }
  int64_t add(const std::string& key, int64_t delta) override {
    return guarded("add", key, [&] { return store_->add(key, delta); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return guarded("check", keys.empty() ? "" : keys.front(), [&] { return store_->check(keys); });
  }
  bool delete_key(const std::string& key) override {
    return guarded("delete", key, [&] { return store_->deleteKey(key); });
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

class ToC10d final : public c10d::Store {
 public:
  explicit ToC10d(std::shared_ptr<comm::Store> store) : store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<ToC10d>(store_); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->set(key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = store_->get(key, timeout_);
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->delete_key(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { throw NotSupported("counting the keys of a store"); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }

 private:
  std::shared_ptr<comm::Store> store_;
};

}  // namespace

std::shared_ptr<Store> from_c10d(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<FromC10d>(std::move(store));
}

c10::intrusive_ptr<c10d::Store> to_c10d(std::shared_ptr<Store> store) {
  return c10::make_intrusive<ToC10d>(std::move(store));
}

}  // namespace apus::comm
