#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/dtype.h"
#include "apus/base/file.h"

namespace apus {

/// Longest header that is read, as in the reference library.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Name, type and shape of a stored tensor.
struct APUS_API TensorSpec {
  /// Any text but "__metadata__", unique in its file.
  std::string name;
  /// Type of the elements.
  DType dtype = DType::kF32;
  /// Sizes from the slowest dim to the fastest; empty for a scalar.
  std::vector<int64_t> shape = {};
};

/// Number of elements of a shape, 1 for a scalar, 0 if any dim is 0.
/// Throws:      ShapeError for a negative dim or a product beyond int64.
APUS_API int64_t element_count(std::span<const int64_t> shape);

/// Bytes of a tensor.
/// Throws:      ShapeError as `element_count`, or if the bytes go beyond int64.
APUS_API int64_t byte_count(const TensorSpec& spec);

/// A tensor inside a mapped file. `data` lives as long as the file object.
struct APUS_API TensorView {
  /// As in the file.
  std::string name;
  /// Type of the elements.
  DType dtype = DType::kF32;
  /// Sizes from the slowest dim to the fastest; empty for a scalar.
  std::vector<int64_t> shape = {};
  /// Row-major elements, little endian; not necessarily aligned to the element.
  std::span<const std::byte> data = {};
};

/// What a safetensors file says about itself, checked in full against its bytes.
struct APUS_API SafetensorsContents {
  /// In order of their bytes.
  std::vector<TensorView> tensors;
  /// The "__metadata__" entry.
  std::map<std::string, std::string> metadata;
};

/// Reads the header of a safetensors file held in memory; the views point into `file`.
/// The input is untrusted: header length, JSON, UTF-8, names, types, shapes, offsets, overlaps, holes,
/// trailing and missing bytes are all checked, each with a message of its own, before any byte of data is
/// touched. Throws:      CheckpointError naming `source`. Source:      the safetensors format description,
/// version 0.6.
APUS_API SafetensorsContents parse_safetensors(std::span<const std::byte> file, const std::string& source);

/// A safetensors file, mapped. Immutable and thread-safe.
/// Throws:      FileError if it cannot be opened, CheckpointError if it is broken.
class APUS_API SafetensorsFile final {
 public:
  /// Maps the file and checks its header; no data is read.
  explicit SafetensorsFile(std::filesystem::path path);

  /// In order of their bytes.
  const std::vector<TensorView>& tensors() const { return contents_.tensors; }
  /// The "__metadata__" entry; empty if there is none.
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  /// The tensor, or null.
  const TensorView* find(std::string_view name) const;
  /// The tensor.
  /// Throws:      CheckpointError naming the nearest name.
  const TensorView& at(std::string_view name) const;
  /// The path that was opened.
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  SafetensorsContents contents_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;
};

/// How a safetensors file is written.
struct SafetensorsWriterOptions {
  /// The "__metadata__" entry; transformers refuses a file without "format".
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

/// Writes a safetensors file as a stream: all tensors are declared first, their bytes follow in the order of
/// `order()`, which is that of the reference library (type by falling alignment, then name). The file appears
/// under its name only after `finish`. Memory:      the header. Throws:      CheckpointError for double
/// names, wrong order or sizes; FileError from the disk.
class APUS_API SafetensorsWriter final {
 public:
  /// Creates the temporary and writes the header; `specs` may come in any order.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> specs,
                    const SafetensorsWriterOptions& options = {});

  /// The tensors in the order in which they must be written.
  const std::vector<TensorSpec>& order() const { return specs_; }
  /// Appends bytes of the next tensor in order; a tensor may come in any number of pieces.
  void write(std::string_view name, std::span<const std::byte> bytes);
  /// Checks that everything was written, then makes the file durable and visible.
  void finish();

 private:
  void skip_complete();

  FileWriter file_;
  std::vector<TensorSpec> specs_;
  std::size_t current_ = 0;
  int64_t written_of_current_ = 0;
};

/// Writes tensors that are all in memory, in any order; names must be unique.
/// Throws:      as SafetensorsWriter.
APUS_API void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                                const SafetensorsWriterOptions& options = {});

}  // namespace apus
