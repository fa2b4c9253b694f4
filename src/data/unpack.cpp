// gzip and zstd as byte sources. Both unpack into the caller's buffer, so that what a file unpacks to is
// never held.
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "data/byte_source.h"

namespace apus::data {
namespace {

/// Packed bytes of a file that wait to be unpacked.
class PackedInput {
 public:
  explicit PackedInput(FileBytes& file) : file_(&file), buffer_(size_t{1} << 16) {}

  /// What waits; more is read if nothing does. Empty at the end of the file.
  std::span<const char> get() {
    if (rest_.empty()) rest_ = std::span(buffer_).first(file_->read(buffer_));
    return rest_;
  }
  void take(size_t count) { rest_ = rest_.subspan(count); }
  /// Byte of the file that comes next.
  int64_t position() const { return file_->position() - static_cast<int64_t>(rest_.size()); }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(file_->path().string(), 0,
                    what + " at byte " + std::to_string(position()) + " of the file");
  }
  [[noreturn]] void ends_early(const char* format) const {
    throw DataError(file_->path().string(), 0,
                    std::string("the ") + format + " data ends early, after byte " +
                        std::to_string(position()) + " of the file: copy the file anew");
  }

 private:
  FileBytes* file_;
  std::vector<char> buffer_;
  std::span<char> rest_;
};

class Gzip final : public ByteSource {
 public:
  explicit Gzip(FileBytes& file) : input_(file) {
    constexpr int kGzipOnly = 16;
    APUS_ASSERT(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "zlib cannot start");
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t read(std::span<char> out) override {
    while (true) {
      const std::span<const char> in = input_.get();
      if (in.empty()) {
        if (inside_) input_.ends_early("gzip");
        return 0;
      }
      if (!inside_ && !begin_member(in)) continue;
      if (const size_t made = inflate_some(in, out); made > 0) return made;
    }
  }

 private:
  /// At the start of a member; false where padding was passed over instead.
  bool begin_member(std::span<const char> in) {
    const size_t zeros =
        static_cast<size_t>(std::ranges::find_if(in, [](char c) { return c != 0; }) - in.begin());
    if (zeros > 0 && any_) {
      input_.take(zeros);
      return false;
    }
    if (any_ && in[0] != '\x1f') input_.fail("something that is no gzip data follows the gzip data");
    inflateReset(&stream_);
    any_ = inside_ = true;
    return true;
  }

  size_t inflate_some(std::span<const char> in, std::span<char> out) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const size_t room = std::min<size_t>(out.size(), size_t{1} << 30);
    stream_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    input_.take(in.size() - stream_.avail_in);
    if (code == Z_STREAM_END) inside_ = false;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      input_.fail(std::string("the gzip data is damaged (") + (stream_.msg ? stream_.msg : "error") + ")");
    return room - stream_.avail_out;
  }

  PackedInput input_;
  z_stream stream_{};
  bool any_ = false;
  bool inside_ = false;
};

class Zstd final : public ByteSource {
 public:
  explicit Zstd(FileBytes& file) : input_(file), context_(ZSTD_createDCtx()) {
    APUS_ASSERT(context_ != nullptr, "zstd cannot start");
  }
  ~Zstd() override { ZSTD_freeDCtx(context_); }

  size_t read(std::span<char> out) override {
    while (true) {
      const std::span<const char> in = input_.get();
      if (in.empty() && !inside_) return 0;
      ZSTD_inBuffer from{in.data(), in.size(), 0};
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      const size_t code = ZSTD_decompressStream(context_, &to, &from);
      input_.take(from.pos);
      if (ZSTD_isError(code)) fail(code);
      inside_ = code != 0;
      if (to.pos > 0) return to.pos;
      if (in.empty()) input_.ends_early("zstd");
    }
  }

 private:
  [[noreturn]] void fail(size_t code) const {
    const bool window = ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge;
    input_.fail(std::string("the zstd data ") +
                (window ? "needs a larger window than 128 MiB" : "is damaged") + " (" +
                ZSTD_getErrorName(code) + (window ? "; pack it without --long or --ultra)" : ")"));
  }

  PackedInput input_;
  ZSTD_DCtx* context_;
  bool inside_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> unpack_gzip(FileBytes& file) {
  return std::make_unique<Gzip>(file);
}

std::unique_ptr<ByteSource> unpack_zstd(FileBytes& file) {
  return std::make_unique<Zstd>(file);
}

}  // namespace apus::data
