#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Base of every exception that apus throws.
/// The message says what was expected, what came, and what to change. Catch this type to handle all of
/// them; catch a derived one to act on its kind. Destructors of apus never throw.
class APUS_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// A flag, option, environment variable or configuration file is wrong.
/// Thrown before the first collective and, for the same arguments, on every rank.
class APUS_API ConfigError final : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

/// A tensor has another shape or dtype than the operation takes.
class APUS_API ShapeError final : public Error {
 public:
  using Error::Error;
  ~ShapeError() override;
};

/// Input data is broken; names the file and the line (1-based, 0 = the file as a whole).
class APUS_API DataError final : public Error {
 public:
  /// The message becomes "file:line: reason" ("file: reason" when line is 0).
  DataError(std::string file, int64_t line, const std::string& reason);
  ~DataError() override;

  /// The file, as the caller named it.
  const std::string& file() const { return file_; }
  /// The line, counted from 1; 0 if it is about the whole file.
  int64_t line() const { return line_; }
  /// The text without the place, so that equal reasons can be counted together.
  const std::string& reason() const { return reason_; }

 private:
  std::string file_;
  int64_t line_;
  std::string reason_;
};

/// Where in the communication an error happened. Fields that are unknown stay at their default.
struct APUS_API CommPlace {
  /// Name of the communicator, e.g. "dp".
  std::string group;
  /// The operation, e.g. "all_reduce".
  std::string operation;
  /// Ordinal of the operation in its group.
  int64_t sequence = -1;
  /// The rank it is about.
  int peer = -1;
};

/// A collective, a store or a rendezvous failed.
class APUS_API CommError final : public Error {
 public:
  /// The place is put before the reason: "dp all_reduce #118 (peer 3): reason".
  CommError(CommPlace place, const std::string& reason);
  /// Where no place is known, e.g. at rendezvous.
  explicit CommError(const std::string& reason);
  ~CommError() override;

  /// Where it happened.
  const CommPlace& place() const { return place_; }

 private:
  CommPlace place_;
};

/// A CUDA, cuBLAS or cuDNN call failed.
class APUS_API CudaError final : public Error {
 public:
  using Error::Error;
  ~CudaError() override;
};

/// Memory ran out; the message names wanted, free and the largest users.
class APUS_API OutOfMemory final : public Error {
 public:
  using Error::Error;
  ~OutOfMemory() override;
};

/// A model, adapter or checkpoint file is broken or does not fit; names the file and the tensor.
class APUS_API CheckpointError final : public Error {
 public:
  /// The message becomes "file: tensor 'name': reason"; an empty tensor is left out.
  CheckpointError(std::string file, std::string tensor, const std::string& reason);
  ~CheckpointError() override;

  /// The file, or the folder if no file of it is to blame.
  const std::string& file() const { return file_; }
  /// The tensor's name in that file; empty if the error is about the file as a whole.
  const std::string& tensor() const { return tensor_; }

 private:
  std::string file_;
  std::string tensor_;
};

/// A valid wish that this build cannot fulfil yet; says what to use instead.
class APUS_API NotSupported final : public Error {
 public:
  using Error::Error;
  ~NotSupported() override;
};

namespace detail {

/// Joins anything streamable into one string.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// What APUS_ASSERT throws.
[[noreturn]] APUS_API void throw_assertion(const char* file, int line, const char* condition,
                                           const std::string& message);

}  // namespace detail
}  // namespace apus

/// Throws `Type` with the streamed parts as message when the caller broke a rule.
/// The parts are evaluated only then. `Type` is one of the errors above that take a single string.
/// Usage: APUS_CHECK(x.dim() == 2, ShapeError, "x has ", x.dim(), " dims, expected 2");
#define APUS_CHECK(condition, Type, ...)                       \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      throw ::apus::Type(::apus::detail::concat(__VA_ARGS__)); \
  } while (false)

/// Throws Error for a bug of apus itself; the message asks to report it.
/// Never for anything that a user, a file or a peer could cause.
#define APUS_ASSERT(condition, ...)                                                                         \
  do {                                                                                                      \
    if (!(condition)) [[unlikely]]                                                                          \
      ::apus::detail::throw_assertion(__FILE__, __LINE__, #condition, ::apus::detail::concat(__VA_ARGS__)); \
  } while (false)
