// Micro-batches onto a GPU. All tensors of one lie side by side in one pinned buffer, so that one copy brings
// them; it runs on a stream of its own while the micro-batch before computes. The device's buffer comes from
// the current stream's pool: memory that queued work may still read is not overwritten, since the copy waits
// for what that stream has to do at this moment, and the current stream waits for the copy before it reads.
#include "apus/data/batch.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "apus/base/error.h"

namespace apus::data {

/// When a batch's tensors have arrived.
class BatchArrival final {
 public:
  explicit BatchArrival(const c10::Stream& copy) : event_(copy.device_type()) { event_.record(copy); }

  void wait(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

namespace {

/// Where each tensor begins in the buffer: vectors of any width may read it.
constexpr size_t kAlignment = 256;

using Field = at::Tensor Batch::*;
constexpr Field kFields[] = {&Batch::tokens_T,
                             &Batch::target_rows_M,
                             &Batch::targets_M,
                             &Batch::target_sequences_M,
                             &Batch::target_weights_M,
                             &Batch::pair_margins_P,
                             &Batch::reference_log_probs_S};

/// A tensor's place in the buffer.
struct Piece {
  Field field;
  size_t begin = 0;
  size_t bytes = 0;
};

struct Layout {
  std::vector<Piece> pieces;
  size_t bytes = 0;
};

Layout lay_out(const Batch& batch) {
  Layout layout;
  for (const Field field : kFields) {
    const at::Tensor& tensor = batch.*field;
    if (!tensor.defined()) continue;
    APUS_CHECK(tensor.is_cpu() && tensor.is_contiguous(), NotSupported,
               "a batch goes to a device from dense CPU tensors, but one of them is on ",
               tensor.device().str());
    layout.pieces.push_back({field, layout.bytes, tensor.nbytes()});
    layout.bytes += (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

/// The tensors behind each other in pinned memory; freed once copied, as the allocator watches the copies.
at::Tensor stage(const Batch& batch, const Layout& layout) {
  const at::Tensor staged =
      at::empty({static_cast<int64_t>(layout.bytes)}, at::TensorOptions(at::kByte).pinned_memory(true));
  auto* const bytes = static_cast<char*>(staged.mutable_data_ptr());
  for (const Piece& piece : layout.pieces) {
    if (piece.bytes > 0) std::memcpy(bytes + piece.begin, (batch.*piece.field).const_data_ptr(), piece.bytes);
  }
  return staged;
}

at::Tensor view_of(const at::Tensor& bytes, const Piece& piece, const at::Tensor& original) {
  const auto begin = static_cast<int64_t>(piece.begin);
  const at::Tensor part = bytes.slice(0, begin, begin + static_cast<int64_t>(piece.bytes));
  return part.view(original.scalar_type()).view(original.sizes());
}

}  // namespace

Batch Batch::to_device(at::Device device) const {
  if (device.is_cpu() || (tokens_T.defined() && tokens_T.device().type() == device.type())) {
    APUS_CHECK(!device.is_cpu() || !host, NotSupported,
               "a batch on a device does not go back to the CPU; read on_host()");
    return *this;
  }
  APUS_CHECK(device.is_cuda() && at::globalContext().hasCUDA(), NotSupported, "a batch cannot go to ",
             device.str(), ": there is no such device here");
  const c10::impl::VirtualGuardImpl devices(device.type());
  if (!device.has_index()) device = devices.getDevice();
  const c10::Stream compute = devices.getStream(device);
  const c10::Stream copy = devices.getStreamFromGlobalPool(device);
  const Layout layout = lay_out(*this);
  const at::Tensor staged = stage(*this, layout);
  const at::Tensor bytes = at::empty(staged.sizes(), at::TensorOptions(at::kByte).device(device));
  BatchArrival(compute).wait(copy);
  Batch batch = *this;
  {
    const c10::StreamGuard on_copy(copy);
    bytes.copy_(staged, /*non_blocking=*/true);
    batch.arrival = std::make_shared<const BatchArrival>(copy);
  }
  batch.host = std::make_shared<const Batch>(*this);
  for (const Piece& piece : layout.pieces) batch.*piece.field = view_of(bytes, piece, this->*piece.field);
  return batch;
}

void Batch::wait_arrival() const {
  if (!arrival) return;
  const at::Device device = tokens_T.device();
  arrival->wait(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace apus::data
