// Affine rows for the peer tests: quantize BITS GROUP TYPE DIM < rows > stored
//
// Reads rows of DIM elements of TYPE (f32, f16, bf16) from standard input. Writes for each row its
// codes, scales and biases, then its elements as they are decoded, in f32.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

// Returns whether every row could be stored.
bool quantize_rows(const VectorCodec& codec, std::int64_t dim) {
  const std::int64_t size = size_bytes(codec.dtype());
  std::vector<std::byte> row(static_cast<std::size_t>(dim * size));
  std::vector<float> elements(static_cast<std::size_t>(dim));
  while (std::fread(row.data(), 1, row.size(), stdin) == row.size()) {
    for (std::int64_t i = 0; i < dim; ++i) {
      elements[static_cast<std::size_t>(i)] = load_element(codec.dtype(), row.data() + i * size);
    }
    const auto stored = encode_alone(codec, elements);
    if (!stored) return false;
    for (const auto& plane : stored->planes) std::fwrite(plane.data(), 1, plane.size(), stdout);
    const std::vector<float> decoded = decode_alone(codec, *stored, dim);
    std::fwrite(decoded.data(), sizeof(float), decoded.size(), stdout);
  }
  return true;
}

}  // namespace
}  // namespace pagekv::testing

int main(int argc, char** argv) {
  const std::string bits = argc > 1 ? argv[1] : "";
  const std::string group = argc > 2 ? argv[2] : "";
  const std::string type = argc > 3 ? argv[3] : "";
  const std::int64_t dim = argc > 4 ? std::atoll(argv[4]) : 0;
  auto codec = pagekv::VectorCodec::parse("affine:" + bits + ":" + group + ":" + type);
  if (codec) codec = codec->resolve(dim);
  if (argc != 5 || !codec) {
    std::cerr << "usage: quantize BITS GROUP TYPE DIM < rows > stored\n";
    if (!codec) std::cerr << codec.error().message() << '\n';
    return 2;
  }
  if (pagekv::testing::quantize_rows(*codec, dim)) return 0;
  std::cerr << "a row has elements that are not finite\n";
  return 1;
}
