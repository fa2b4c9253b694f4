#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apus/base/api.h"

namespace apus {

/// CRC-32C (Castagnoli) of bytes: what record files of TensorFlow and TensorBoard carry. Finds accidents, not
/// forgery; apus' own files are hashed by XXH64 or SHA-256 (hash.h).
/// `before` is the checksum of what came earlier, so that data may arrive in pieces.
/// Source:      RFC 3720, appendix B.4.
APUS_API uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace apus
