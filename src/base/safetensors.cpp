#include "apus/base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"
#include "base/safetensors_header.h"

namespace apus {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is used in place");

// Length of the JSON, checked against the file.
uint64_t header_length(std::span<const std::byte> file, const std::string& source) {
  const auto fail = [&](auto... parts) { throw CheckpointError(source, "", detail::concat(parts...)); };
  if (file.size() < 8)
    fail("has ", file.size(), " bytes; a safetensors file has at least 8 for its header length");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxSafetensorsHeaderBytes) {
    fail("claims a header of ", length, " bytes, at most ", kMaxSafetensorsHeaderBytes,
         " are allowed; this is no safetensors file");
  }
  if (length > file.size() - 8) {
    fail("claims a header of ", length, " bytes, but only ", file.size() - 8,
         " follow; the file is truncated");
  }
  return length;
}

// Type and shape must give exactly the bytes of the offsets.
void check_size(const detail::SafetensorsEntry& entry, const std::string& source) {
  const std::string& name = entry.spec.name;
  if (entry.begin > entry.end) {
    throw CheckpointError(source, name,
                          detail::concat("begins at byte ", entry.begin, " but ends at ", entry.end));
  }
  uint64_t expected = 0;
  try {
    expected = static_cast<uint64_t>(byte_count(entry.spec));
  } catch (const ShapeError& error) {
    throw CheckpointError(source, name, error.what());
  }
  if (entry.end - entry.begin == expected) return;
  throw CheckpointError(source, name,
                        detail::concat("has ", entry.end - entry.begin, " bytes, its shape and dtype ",
                                       dtype_name(entry.spec.dtype), " need ", expected));
}

// The tensors must follow each other without hole or overlap and end where the file does.
void check_layout(const std::vector<detail::SafetensorsEntry>& entries, uint64_t data_bytes,
                  const std::string& source) {
  uint64_t end = 0;
  for (const detail::SafetensorsEntry& entry : entries) {
    if (entry.begin < end) {
      throw CheckpointError(source, entry.spec.name,
                            detail::concat("begins at byte ", entry.begin,
                                           " inside the tensor before it, which ends at ", end));
    }
    if (entry.begin > end) {
      throw CheckpointError(
          source, entry.spec.name,
          detail::concat("begins at byte ", entry.begin, " after a hole that starts at ", end));
    }
    end = entry.end;
  }
  if (end > data_bytes) {
    throw CheckpointError(
        source, "",
        detail::concat("is truncated: its header lists ", end, " bytes of data, the file holds ", data_bytes,
                       "; copy or download it again"));
  }
  if (end < data_bytes) {
    throw CheckpointError(source, "",
                          detail::concat("has ", data_bytes - end, " bytes after its last tensor"));
  }
}

void sort_like_the_reference(std::vector<TensorSpec>& specs) {
  std::ranges::sort(specs, [](const TensorSpec& a, const TensorSpec& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
}

}  // namespace

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : shape) {
    APUS_CHECK(dim >= 0, ShapeError, "a dim of the shape is ", dim, ", expected 0 or more");
    empty = empty || dim == 0;
  }
  if (empty) return 0;
  for (const int64_t dim : shape) {
    APUS_CHECK(!__builtin_mul_overflow(count, dim, &count), ShapeError,
               "the shape has more than 2^63 elements");
  }
  return count;
}

int64_t byte_count(const TensorSpec& spec) {
  int64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(element_count(spec.shape), dtype_size(spec.dtype), &bytes);
  APUS_CHECK(!overflow, ShapeError, "the shape has more than 2^63 bytes");
  return bytes;
}

SafetensorsContents parse_safetensors(std::span<const std::byte> file, const std::string& source) {
  const uint64_t length = header_length(file, source);
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, length);
  detail::SafetensorsHeader header = detail::read_safetensors_header(json, source);
  std::ranges::sort(header.entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  for (const auto& entry : header.entries) check_size(entry, source);
  const std::span<const std::byte> data = file.subspan(8 + length);
  check_layout(header.entries, data.size(), source);
  SafetensorsContents contents{.tensors = {}, .metadata = std::move(header.metadata)};
  contents.tensors.reserve(header.entries.size());
  for (auto& [spec, begin, end] : header.entries) {
    contents.tensors.push_back({.name = std::move(spec.name),
                                .dtype = spec.dtype,
                                .shape = std::move(spec.shape),
                                .data = data.subspan(begin, end - begin)});
  }
  return contents;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : file_(std::move(path)), contents_(parse_safetensors(file_.bytes(), file_.path().string())) {
  by_name_.reserve(contents_.tensors.size());
  for (const TensorView& tensor : contents_.tensors) by_name_.emplace(tensor.name, &tensor);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  if (const TensorView* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const TensorView& tensor : contents_.tensors) names.push_back(tensor.name);
  throw CheckpointError(path().string(), std::string(name), "is not in the file" + did_you_mean(name, names));
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> specs,
                                     const SafetensorsWriterOptions& options)
    : file_(std::move(path)), specs_(std::move(specs)) {
  sort_like_the_reference(specs_);
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs_) names.push_back(spec.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    throw CheckpointError(file_.path().string(), std::string(*twice), "is declared twice");
  if (std::ranges::binary_search(names, "__metadata__")) {
    throw CheckpointError(file_.path().string(), "__metadata__", "is a reserved name");
  }
  const std::string header = detail::write_safetensors_header(specs_, options.metadata);
  const uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < specs_.size() && written_of_current_ == byte_count(specs_[current_])) {
    ++current_;
    written_of_current_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::string place = file_.path().string();
  if (current_ == specs_.size()) {
    throw CheckpointError(place, std::string(name), "more bytes than declared: all tensors are complete");
  }
  const TensorSpec& spec = specs_[current_];
  if (name != spec.name) {
    throw CheckpointError(place, std::string(name),
                          "is written out of order; '" + spec.name + "' comes next");
  }
  const int64_t left = byte_count(spec) - written_of_current_;
  if (static_cast<int64_t>(bytes.size()) > left) {
    throw CheckpointError(
        place, spec.name,
        detail::concat(bytes.size(), " bytes come, but only ", left, " of ", byte_count(spec), " are left"));
  }
  file_.write(bytes);
  written_of_current_ += static_cast<int64_t>(bytes.size());
  skip_complete();
}

void SafetensorsWriter::finish() {
  if (current_ < specs_.size()) {
    throw CheckpointError(file_.path().string(), specs_[current_].name,
                          detail::concat("is incomplete: ", written_of_current_, " of ",
                                         byte_count(specs_[current_]), " bytes were written"));
  }
  file_.finish();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const SafetensorsWriterOptions& options) {
  std::vector<TensorSpec> specs;
  std::unordered_map<std::string_view, const TensorView*> by_name;
  for (const TensorView& tensor : tensors) {
    specs.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    by_name.emplace(tensor.name, &tensor);
  }
  SafetensorsWriter writer(path, std::move(specs), options);
  for (const TensorSpec& spec : writer.order()) writer.write(spec.name, by_name.at(spec.name)->data);
  writer.finish();
}

}  // namespace apus
