#include "data/jinja_bigint.h"

#include <algorithm>
#include <cmath>

namespace apus::data::jinja {
namespace {

using Limbs = std::vector<uint32_t>;

void drop_zeros(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

int compare_limbs(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

Limbs add_limbs(const Limbs& a, const Limbs& b) {
  Limbs sum;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry != 0; ++i) {
    carry += (i < a.size() ? a[i] : 0ull) + (i < b.size() ? b[i] : 0ull);
    sum.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  return sum;
}

// a - b where a >= b.
Limbs subtract_limbs(const Limbs& a, const Limbs& b) {
  Limbs difference(a.size());
  int64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t d = static_cast<int64_t>(a[i]) - (i < b.size() ? b[i] : 0) - borrow;
    borrow = d < 0 ? 1 : 0;
    if (d < 0) d += int64_t{1} << 32;
    difference[i] = static_cast<uint32_t>(d);
  }
  drop_zeros(difference);
  return difference;
}

// Multiplies in place by a small factor and adds a small term.
void multiply_add(Limbs& limbs, uint32_t factor, uint32_t term) {
  uint64_t carry = term;
  for (uint32_t& limb : limbs) {
    carry += static_cast<uint64_t>(limb) * factor;
    limb = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) limbs.push_back(static_cast<uint32_t>(carry));
}

// Divides in place and returns the remainder.
uint32_t divide_small(Limbs& limbs, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = limbs.size(); i-- > 0;) {
    rest = rest << 32 | limbs[i];
    limbs[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  drop_zeros(limbs);
  return static_cast<uint32_t>(rest);
}

// Bit by bit: numbers here are a few limbs long.
void divide_limbs(const Limbs& a, const Limbs& b, Limbs& quotient, Limbs& rest) {
  quotient.assign(a.size(), 0);
  rest.clear();
  for (size_t bit = a.size() * 32; bit-- > 0;) {
    multiply_add(rest, 2, a[bit / 32] >> (bit % 32) & 1);
    if (compare_limbs(rest, b) < 0) continue;
    rest = subtract_limbs(rest, b);
    quotient[bit / 32] |= 1u << (bit % 32);
  }
  drop_zeros(quotient);
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

}  // namespace

void BigInt::trim() {
  drop_zeros(limbs_);
  if (limbs_.empty()) negative_ = false;
}

BigInt::BigInt(int64_t value) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  *this = from_unsigned(magnitude);
  negative_ = value < 0;
}

BigInt BigInt::from_unsigned(uint64_t value) {
  BigInt big;
  big.limbs_ = {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
  big.trim();
  return big;
}

BigInt BigInt::from_double(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(std::fabs(value)), &exponent);
  BigInt big = from_unsigned(static_cast<uint64_t>(std::ldexp(fraction, std::min(exponent, 64))));
  for (int shift = exponent - 64; shift > 0; shift -= 16) {
    multiply_add(big.limbs_, 1u << std::min(shift, 16), 0);
  }
  big.negative_ = value < 0;
  big.trim();
  return big;
}

std::optional<BigInt> BigInt::parse(std::string_view digits, uint32_t base) {
  BigInt big;
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    const int value = digit_value(c);
    if (value >= static_cast<int>(base)) return std::nullopt;
    multiply_add(big.limbs_, base, static_cast<uint32_t>(value));
  }
  big.trim();
  return big;
}

bool BigInt::fits_int64() const {
  if (limbs_.size() > 2) return false;
  if (limbs_.size() < 2) return true;
  const uint64_t magnitude = static_cast<uint64_t>(limbs_[1]) << 32 | limbs_[0];
  return magnitude <= static_cast<uint64_t>(INT64_MAX) + (negative_ ? 1 : 0);
}

int64_t BigInt::to_int64() const {
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = magnitude << 32 | limbs_[i];
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInt::to_double() const {
  // Three limbs hold 64 significant bits at least; whatever is below only breaks ties.
  const size_t top = limbs_.size() > 3 ? limbs_.size() - 3 : 0;
  bool sticky = false;
  for (size_t i = 0; i < top; ++i) sticky = sticky || limbs_[i] != 0;
  unsigned __int128 head = 0;
  for (size_t i = limbs_.size(); i-- > top;) head = head << 32 | limbs_[i];
  if (sticky) head |= 1;
  const double value =
      std::ldexp(static_cast<double>(head), static_cast<int>(std::min<size_t>(top * 32, 5000)));
  return negative_ ? -value : value;
}

std::string BigInt::to_string(uint32_t base) const {
  if (limbs_.empty()) return "0";
  std::string digits;
  Limbs rest = limbs_;
  while (!rest.empty()) digits += "0123456789abcdefghijklmnopqrstuvwxyz"[divide_small(rest, base)];
  if (negative_) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

BigInt BigInt::operator-() const {
  BigInt result = *this;
  result.negative_ = !negative_ && !limbs_.empty();
  return result;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt sum;
  if (a.negative_ == b.negative_) {
    sum.limbs_ = add_limbs(a.limbs_, b.limbs_);
    sum.negative_ = a.negative_;
  } else if (compare_limbs(a.limbs_, b.limbs_) >= 0) {
    sum.limbs_ = subtract_limbs(a.limbs_, b.limbs_);
    sum.negative_ = a.negative_;
  } else {
    sum.limbs_ = subtract_limbs(b.limbs_, a.limbs_);
    sum.negative_ = b.negative_;
  }
  sum.trim();
  return sum;
}

BigInt operator-(const BigInt& a, const BigInt& b) {
  return a + -b;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt product;
  product.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += product.limbs_[i + j];
      if (j < b.limbs_.size()) carry += static_cast<uint64_t>(a.limbs_[i]) * b.limbs_[j];
      product.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  product.negative_ = a.negative_ != b.negative_;
  product.trim();
  return product;
}

void BigInt::divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder) {
  BigInt q;
  BigInt r;
  divide_limbs(a.limbs_, b.limbs_, q.limbs_, r.limbs_);
  q.negative_ = a.negative_ != b.negative_;
  r.negative_ = a.negative_;
  q.trim();
  r.trim();
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = q - BigInt(1);
    r = r + b;
  }
  quotient = std::move(q);
  remainder = std::move(r);
}

int BigInt::compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = compare_limbs(a.limbs_, b.limbs_);
  return a.negative_ ? -order : order;
}

}  // namespace apus::data::jinja
