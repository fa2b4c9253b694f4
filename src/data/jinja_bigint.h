#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus::data::jinja {

/// An integer of any size, for the rare results beyond 64 bits. Division rounds down as Python's.
class BigInt {
 public:
  BigInt() = default;
  explicit BigInt(int64_t value);
  static BigInt from_unsigned(uint64_t value);
  /// The integral part of a finite double.
  static BigInt from_double(double value);
  /// Digits in a base from 2 to 36 without sign or prefix; nothing if a character is no digit.
  static std::optional<BigInt> parse(std::string_view digits, uint32_t base = 10);

  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  bool is_odd() const { return !limbs_.empty() && (limbs_[0] & 1) != 0; }
  /// Limbs of 32 bits: a measure of the work that an operation takes.
  size_t size() const { return limbs_.size(); }
  bool fits_int64() const;
  int64_t to_int64() const;
  /// Nearest double; infinite where it is too large.
  double to_double() const;
  std::string to_string(uint32_t base = 10) const;

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  /// Quotient rounded down and remainder with the divisor's sign; b must not be zero.
  static void divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder);
  /// -1, 0, 1.
  static int compare(const BigInt& a, const BigInt& b);

 private:
  bool negative_ = false;
  std::vector<uint32_t> limbs_;  // least significant first, no leading zero

  void trim();
};

}  // namespace apus::data::jinja
