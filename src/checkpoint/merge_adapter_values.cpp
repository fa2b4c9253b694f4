#include "checkpoint/merge_adapter_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apus/base/dtype.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/models/tensor_dtype.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A tensor over the mapped bytes; they outlive it. A copy where they are not aligned.
at::Tensor tensor_of(const TensorView& view) {
  const at::ScalarType type = models::scalar_type(view.dtype);
  if (reinterpret_cast<uintptr_t>(view.data.data()) % static_cast<uintptr_t>(dtype_size(view.dtype)) == 0)
    return at::from_blob(const_cast<std::byte*>(view.data.data()), view.shape,
                         at::TensorOptions().dtype(type));
  at::Tensor copy = at::empty(view.shape, type);
  std::memcpy(copy.mutable_data_ptr(), view.data.data(), view.data.size());
  return copy;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Lets the system forget the file's pages, so that reading it back reads the disk. No more than a hint.
void forget_pages(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw FileError("open", path, errno);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

/// Gives freed memory back. glibc cannot use the hole of an aligned block for the next one of that size, so
/// that tensors of up to 32 MiB, freed one by one, would add up to the size of the model.
void give_back_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

void check_spec(const fs::path& path, const TensorSpec& spec, const at::Tensor& merged) {
  const bool fits = models::stored_dtype(merged.scalar_type()) == spec.dtype && merged.sizes() == spec.shape;
  APUS_ASSERT(fits, path.string(), ": the merged value of ", spec.name, " is ", merged.sizes(), " of ",
              c10::toString(merged.scalar_type()));
}

}  // namespace

MergedValues::MergedValues(const ShardedSafetensors& base, const peft::AdapterMerge& merge)
    : base_(base), merge_(merge) {
  for (const std::string& name : merge.touched()) sources_[name] = name;
  for (const peft::AddedTensor& added : merge.added()) sources_[added.name] = added.like;
  for (const auto& [name, source] : sources_) {
    const TensorView& view = base.at(source);
    APUS_CHECK(is_floating_point(view.dtype) && dtype_size(view.dtype) >= 2, NotSupported,
               base.folder().string(), ": ", source, " is stored as ", dtype_name(view.dtype),
               "; an adapter cannot be merged into a quantised base, name the original weights by --model");
  }
}

std::vector<std::string> MergedValues::merged_names() const {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) names.push_back(name);
  return names;
}

at::Tensor MergedValues::merged(const std::string& name) const {
  return merge_.merged(name, tensor_of(base_.at(sources_.at(name)))).contiguous();
}

TensorHashes write_merged_file(const fs::path& folder, const MergedFile& file, const MergedValues& values) {
  SafetensorsWriter writer(folder / file.name, file.tensors);
  TensorHashes hashes;
  const std::vector<TensorSpec> order = writer.order();
  for (const TensorSpec& spec : order) {
    const auto write = [&](std::span<const std::byte> bytes) {
      hashes[spec.name] = Hash64().update(bytes).digest();
      writer.write(spec.name, bytes);
    };
    if (!values.is_merged(spec.name)) {
      write(values.stored(spec.name).data);
      continue;
    }
    at::Tensor merged = values.merged(spec.name);
    check_spec(folder / file.name, spec, merged);
    write(bytes_of(merged));
    merged.reset();
    give_back_memory();
  }
  writer.finish();
  return hashes;
}

int64_t check_merged_file(const fs::path& folder, const MergedFile& file, const MergedValues& values,
                          const TensorHashes& hashes, const std::set<std::string>& recomputed) {
  const fs::path path = folder / file.name;
  forget_pages(path);
  const SafetensorsFile written(path);
  int64_t compared = 0;
  for (const TensorSpec& spec : file.tensors) {
    const TensorView& view = written.at(spec.name);
    const auto refuse = [&](const char* reason) {
      throw CheckpointError(path.string(), spec.name,
                            std::string(reason) + "; nothing was kept, merge again");
    };
    if (view.dtype != spec.dtype || view.shape != spec.shape)
      refuse("was read back with another type or shape");
    if (Hash64().update(view.data).digest() != hashes.at(spec.name))
      refuse("reads back other bytes than were written: the disk is not to be trusted");
    if (!recomputed.contains(spec.name)) continue;
    at::Tensor again = values.merged(spec.name);
    if (std::memcmp(bytes_of(again).data(), view.data.data(), view.data.size()) != 0)
      refuse("differs from a second computation of the merge: memory or processor are not to be trusted");
    again.reset();
    give_back_memory();
    ++compared;
  }
  return compared;
}

}  // namespace apus::checkpoint
