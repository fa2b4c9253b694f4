#pragma once

namespace apus::ops::kernels {

/// What the tensors of an element-wise kernel hold; the arithmetic is fp32 for both.
enum class Element { kFp32, kBf16 };

/// Elements that fit one 16-byte access.
constexpr int elements_a_vector(Element element) {
  return element == Element::kBf16 ? 8 : 4;
}

}  // namespace apus::ops::kernels
