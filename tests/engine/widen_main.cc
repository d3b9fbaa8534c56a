// Weights for the peer tests: widen MODEL.gguf TENSOR > values
//
// Writes the tensor's values as raw f32 to standard output, row after row.
#include <cstdio>
#include <iostream>
#include <vector>

#include "engine/gguf.h"
#include "engine/mapped_file.h"

namespace {

pagekv::Status write(const char* path, const char* name) {
  const auto file = pagekv::engine::MappedFile::open(path);
  if (!file) return tl::unexpected(file.error());
  const auto gguf = pagekv::engine::GgufFile::parse(file->bytes());
  if (!gguf) return tl::unexpected(gguf.error());
  const auto tensor = gguf->readable_tensor(name);
  if (!tensor) return tl::unexpected(tensor.error());
  std::vector<float> row(static_cast<std::size_t>(tensor->columns()));
  for (std::int64_t i = 0; i < tensor->rows(); ++i) {
    if (auto status = widen(*tensor, i, 1, row); !status) return status;
    std::fwrite(row.data(), sizeof(float), row.size(), stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: widen MODEL.gguf TENSOR\n";
    return 2;
  }
  const auto status = write(argv[1], argv[2]);
  if (!status) std::cerr << status.error().message() << '\n';
  return status ? 0 : 1;
}
