#include "peft/stored_tensor.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "apus/base/error.h"

namespace apus::peft::detail {

void check_adapter_files(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kConfigName))
    throw CheckpointError(
        (folder / kConfigName).string(), "",
        "there is no such file; an adapter folder holds it and " + std::string(kWeightsName));
  if (std::filesystem::exists(folder / kWeightsName)) return;
  APUS_CHECK(
      !std::filesystem::exists(folder / "adapter_model.bin"), NotSupported, folder.string(),
      "/adapter_model.bin is a pickle, which can run code and is never read; convert it with: python -c "
      "\"import torch, safetensors.torch as s; s.save_file(torch.load('adapter_model.bin', "
      "weights_only=True), '",
      kWeightsName, "', {'format': 'pt'})\"");
  throw CheckpointError((folder / kWeightsName).string(), "", "there is no such file");
}

at::ScalarType stored_scalar_type(const TensorView& view, const std::string& file) {
  switch (view.dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kF64:
      return at::kDouble;
    default:
      throw CheckpointError(
          file, view.name,
          "is stored as " + std::string(dtype_name(view.dtype)) + ", expected F32, BF16, F16 or F64");
  }
}

at::Tensor read_stored(const TensorView& view, const std::string& file) {
  // Through a buffer: mapped bytes need not be aligned.
  const at::Tensor stored = at::empty(view.shape, at::TensorOptions(stored_scalar_type(view, file)));
  std::memcpy(stored.mutable_data_ptr(), view.data.data(), view.data.size());
  return stored;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace apus::peft::detail
