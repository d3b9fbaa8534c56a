// Token ids for the peer tests: tokenize MODEL.gguf [--special] < texts > ids
//
// Standard input holds texts, each as its length in bytes, a line end, and the bytes. For each a
// line of JSON goes to standard output: the array of its ids, or a string with the error. Bos is
// left out.
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "engine/gguf.h"
#include "engine/mapped_file.h"
#include "engine/tokenizer.h"

namespace {

using pagekv::engine::GgufFile;
using pagekv::engine::MappedFile;
using pagekv::engine::Tokenizer;

int fail_with(const pagekv::Error& error) {
  std::cerr << error.message() << '\n';
  return 1;
}

int run(const Tokenizer& tokenizer, bool special) {
  std::size_t length = 0;
  while (std::cin >> length) {
    std::string text(length, '\0');
    std::cin.get();  // the line end
    if (!std::cin.read(text.data(), static_cast<std::streamsize>(length))) return 1;
    const auto tokens = tokenizer.encode(text, {.bos = false, .special = special});
    if (!tokens) {
      std::cout << '"' << tokens.error().message() << "\"\n";
      continue;
    }
    std::string line = "[";
    for (const auto token : *tokens) line += (line.size() > 1 ? "," : "") + std::to_string(token);
    std::cout << line << "]\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool special = argc == 3 && std::string_view(argv[2]) == "--special";
  if (argc != 2 && !special) {
    std::cerr << "usage: tokenize MODEL.gguf [--special]\n";
    return 2;
  }
  const auto file = MappedFile::open(argv[1]);
  if (!file) return fail_with(file.error());
  const auto gguf = GgufFile::parse(file->bytes());
  if (!gguf) return fail_with(gguf.error());
  const auto tokenizer = pagekv::engine::make_tokenizer(*gguf);
  if (!tokenizer) return fail_with(tokenizer.error());
  return run(**tokenizer, special);
}
