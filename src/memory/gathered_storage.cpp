#include "apus/memory/gathered_storage.h"

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>

#include <memory>
#include <utility>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

/// The flag behind c10's own "this storage must not be read" can be set but not cleared through its
/// interface; an explicit instantiation may name a private member.
template <bool c10::StorageImpl::*Flag>
struct FlagOf {
  friend bool& refuses_access(c10::StorageImpl& storage) { return storage.*Flag; }
};
bool& refuses_access(c10::StorageImpl& storage);
template struct FlagOf<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

void release_slot(void* slot) {
  delete static_cast<at::Tensor*>(slot);
}

}  // namespace

GatheredStorage::GatheredStorage(int64_t bytes, at::Device device, const std::string& untouchable)
    : bytes_(bytes),
      device_(device),
      untouchable_(untouchable),
      storage_(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                     c10::DataPtr(nullptr, device), /*allocator=*/nullptr,
                                                     /*resizable=*/false)) {
  remove();
}

at::Tensor GatheredStorage::view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType dtype) const {
  const auto options = at::TensorOptions().dtype(dtype).device(device_);
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage_), at::empty({0}, options).key_set(), c10::scalarTypeToTypeMeta(dtype));
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  APUS_CHECK(offset_bytes % element == 0 && offset_bytes + result.numel() * element <= bytes_, ShapeError,
             "a view of ", result.numel(), " x ", element, " bytes at byte ", offset_bytes,
             " does not fit a gathered buffer of ", bytes_, " bytes");
  result.unsafeGetTensorImpl()->set_storage_offset(offset_bytes / element);
  return result;
}

void GatheredStorage::install(const at::Tensor& slot) {
  APUS_CHECK(slot.scalar_type() == at::kByte && slot.is_contiguous() && slot.numel() >= bytes_, ShapeError,
             "a slot for ", bytes_, " bytes must be contiguous uint8 of at least that, got ", slot.toString(),
             " of ", slot.numel());
  auto keeper = std::make_unique<at::Tensor>(slot);
  refuses_access(*storage_.unsafeGetStorageImpl()) = false;
  void* memory = slot.data_ptr();
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(memory, keeper.release(), &release_slot, device_));
  installed_ = true;
}

void GatheredStorage::remove() {
  if (bytes_ == 0) return;  // nothing can be read too early, and kernels ask even an empty tensor for its memory
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
  storage_.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(untouchable_);
  installed_ = false;
}

}  // namespace apus::memory
