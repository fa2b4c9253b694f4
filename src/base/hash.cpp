#include "apus/base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "apus/base/file.h"

namespace apus {
namespace {

constexpr uint64_t kP1 = 11400714785074694791ull, kP2 = 14029467366897019727ull;
constexpr uint64_t kP3 = 1609587929392839161ull, kP4 = 9650029242287828579ull;
constexpr uint64_t kP5 = 2870177450012600261ull;

constexpr std::array<uint32_t, 64> kSha256Constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t xxh_round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kP2, 31) * kP1;
}

uint64_t xxh_merge(uint64_t hash, uint64_t lane) {
  return (hash ^ xxh_round(0, lane)) * kP1 + kP4;
}

void xxh_stripe(std::array<uint64_t, 4>& lanes, const std::byte* at) {
  for (int i = 0; i < 4; ++i) lanes[i] = xxh_round(lanes[i], load<uint64_t>(at + 8 * i));
}

uint64_t xxh_finish(uint64_t hash, std::span<const std::byte> tail) {
  for (; tail.size() >= 8; tail = tail.subspan(8)) {
    hash = std::rotl(hash ^ xxh_round(0, load<uint64_t>(tail.data())), 27) * kP1 + kP4;
  }
  if (tail.size() >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(tail.data()) * kP1, 23) * kP2 + kP3;
    tail = tail.subspan(4);
  }
  for (const std::byte b : tail) hash = std::rotl(hash ^ std::to_integer<uint64_t>(b) * kP5, 11) * kP1;
  hash = (hash ^ (hash >> 33)) * kP2;
  hash = (hash ^ (hash >> 29)) * kP3;
  return hash ^ (hash >> 32);
}

// Passes whole blocks to `take`, keeping what is left over in `tail`.
template <std::size_t N, typename Take>
void feed_blocks(std::span<const std::byte> bytes, std::array<std::byte, N>& tail, uint64_t& total,
                 Take take) {
  const std::size_t held = total % N;
  total += bytes.size();
  if (held > 0) {
    const std::size_t more = std::min(bytes.size(), N - held);
    std::ranges::copy(bytes.first(more), tail.begin() + held);
    bytes = bytes.subspan(more);
    if (held + more < N) return;
    take(tail.data());
  }
  for (; bytes.size() >= N; bytes = bytes.subspan(N)) take(bytes.data());
  std::ranges::copy(bytes, tail.begin());
}

}  // namespace

uint64_t hash64(std::string_view text, uint64_t seed) {
  return Hash64(seed).update(text).digest();
}

Hash64::Hash64(uint64_t seed) : seed_(seed), lanes_{seed + kP1 + kP2, seed + kP2, seed, seed - kP1} {}

Hash64& Hash64::update(std::span<const std::byte> bytes) {
  feed_blocks(bytes, tail_, total_bytes_, [this](const std::byte* block) { xxh_stripe(lanes_, block); });
  return *this;
}

uint64_t Hash64::digest() const {
  uint64_t hash = seed_ + kP5;
  if (total_bytes_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = xxh_merge(hash, lane);
  }
  return xxh_finish(hash + total_bytes_, std::span(tail_).first(total_bytes_ % 32));
}

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
}

void Sha256::compress(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) w[i] = __builtin_bswap32(load<uint32_t>(block + 4 * i));
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Constants[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += after[i];
}

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  feed_blocks(bytes, tail_, total_bytes_, [this](const std::byte* block) { compress(block); });
  return *this;
}

std::array<std::byte, 32> Sha256::digest() const {
  Sha256 padded = *this;
  std::array<std::byte, 72> padding{std::byte{0x80}};
  const std::size_t zeros_end = 1 + (119 - total_bytes_ % 64) % 64;
  const uint64_t length = __builtin_bswap64(total_bytes_ * 8);
  std::memcpy(padding.data() + zeros_end, &length, 8);
  padded.update(std::span(padding).first(zeros_end + 8));
  std::array<std::byte, 32> out;
  for (int i = 0; i < 8; ++i) {
    const uint32_t word = __builtin_bswap32(padded.state_[i]);
    std::memcpy(out.data() + 4 * i, &word, 4);
  }
  return out;
}

std::string Sha256::hex() const {
  return to_hex(digest());
}

std::string sha256_hex(std::string_view text) {
  return Sha256().update(text).hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  return Sha256().update(MappedFile(path).bytes()).hex();
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

std::string to_hex(uint64_t value) {
  const uint64_t big_endian = __builtin_bswap64(value);
  return to_hex(std::as_bytes(std::span(&big_endian, 1)));
}

}  // namespace apus
