#include "apus/comm/agreed_phase.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "apus/base/error.h"
#include "apus/comm/status_exchange.h"

namespace apus::comm {

void run_agreed(Communicator& group, const std::string& what, const std::function<void()>& phase) {
  std::exception_ptr failure;
  std::optional<std::string> message;
  try {
    phase();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    message = error.what();
  }
  try {
    agree(group, message, {.what = what});
  } catch (const CommError&) {
    if (failure) std::rethrow_exception(failure);
    throw;
  }
}

std::string broadcast_text(Communicator& group, const std::string& text) {
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  group.broadcast(size, 0)->wait();
  const int64_t bytes = *size.const_data_ptr<int64_t>();
  if (bytes == 0) return "";
  const at::Tensor buffer = at::empty({bytes}, at::kByte);
  if (group.rank() == 0) std::copy(text.begin(), text.end(), buffer.mutable_data_ptr<uint8_t>());
  group.broadcast(buffer, 0)->wait();
  const uint8_t* data = buffer.const_data_ptr<uint8_t>();
  return {data, data + bytes};
}

}  // namespace apus::comm
