#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "apus/base/error.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

// The error of the first text that has one, whatever thread met it.
class FirstError {
 public:
  // Texts after that one need not be looked at.
  bool is_past(size_t index) const { return index > index_.load(); }

  void note(size_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (index >= index_.load()) return;
    index_ = index;
    error_ = std::move(error);
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::atomic<size_t> index_ = SIZE_MAX;
  std::exception_ptr error_;
};

}  // namespace

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                          EncodeOptions options, int threads) const {
  APUS_CHECK(threads >= 1, ConfigError, "encode_batch got ", threads, " threads; expected at least 1");
  std::vector<std::vector<int32_t>> out(texts.size());
  std::atomic<size_t> next = 0;
  FirstError first_error;
  const auto work = [&] {
    for (size_t i = next++; i < texts.size() && !first_error.is_past(i); i = next++) {
      try {
        out[i] = encode(texts[i], options);
      } catch (...) {
        first_error.note(i, std::current_exception());
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min<size_t>(static_cast<size_t>(threads), texts.size()); ++i)
      helpers.emplace_back(work);
    work();
  }
  first_error.rethrow();
  return out;
}

}  // namespace apus::data
